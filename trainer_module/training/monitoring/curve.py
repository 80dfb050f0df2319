"""How a training went, in no more points than a checkpoint and a picture have room for.

Imports no TensorFlow.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

FILE_NAME = "curve.json"

MOST = 1000
"""Points that are kept at most; even."""


class Point(NamedTuple):
    """Means over the steps since the point before."""

    step: int
    loss: float
    accuracy: float
    learning_rate: float
    """Of the last one of them."""
    images_per_second: float


class Curve:
    """Points by step; where there are too many, two become one."""

    def __init__(self, points: Iterable[Sequence[Any]] = ()):
        """Goes on from points of an earlier attempt, as JSON has them."""
        self.points = [Point(*point) for point in points]

    def add(self, point: Point) -> None:
        """The next one."""
        self.points.append(point)
        if len(self.points) == MOST:
            before = [0, *(point.step for point in self.points[1::2])]
            triples = zip(before, self.points[::2], self.points[1::2], strict=False)
            self.points = [_merged(*each) for each in triples]

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes ``folder/curve.json``."""
        pathlib.Path(folder, FILE_NAME).write_text(json.dumps(self.points))


def read(text: str) -> list[Point]:
    """What :meth:`Curve.write` wrote."""
    return Curve(json.loads(text)).points


def _merged(before: int, first: Point, second: Point) -> Point:
    """Both as one, after the step ``before``: each step weighs the same."""
    share = (first.step - before) / (second.step - before)

    def mean(one: float, other: float) -> float:
        return share * one + (1 - share) * other

    return second._replace(
        loss=mean(first.loss, second.loss),
        accuracy=mean(first.accuracy, second.accuracy),
        images_per_second=mean(first.images_per_second, second.images_per_second),
    )
