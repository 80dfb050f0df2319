"""The learning curve: a bounded number of points, for checkpoints and charts. No TensorFlow."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

FILE_NAME = "curve.json"

MAX_POINTS = 1000
"""An even number."""


class Point(NamedTuple):
    """Means over the steps since the previous point."""

    step: int
    loss: float
    metrics: dict[str, float]
    """Of the task, by name."""
    learning_rate: float
    """Learning rate at the last of these steps."""
    images_per_second: float

    def flat(self) -> dict[str, float]:
        """The point with its metrics side by side."""
        fields = self._asdict()
        metrics: dict[str, float] = fields.pop("metrics")
        return {"step": fields.pop("step"), "loss": fields.pop("loss"), **metrics, **fields}


class Curve:
    """Points by step; at :data:`MAX_POINTS`, each two are merged into one."""

    def __init__(self, points: Iterable[Sequence[Any]] = ()):
        """Continues the points of an earlier attempt, read from JSON."""
        self.points = [Point(*point) for point in points]

    def add(self, point: Point) -> None:
        """Appends a point."""
        self.points.append(point)
        if len(self.points) == MAX_POINTS:
            before = [0, *(point.step for point in self.points[1::2])]
            triples = zip(before, self.points[::2], self.points[1::2], strict=False)
            self.points = [_merged(*each) for each in triples]

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes ``folder/curve.json``."""
        pathlib.Path(folder, FILE_NAME).write_text(json.dumps(self.points))


def read(text: str) -> list[Point]:
    """Parses the output of :meth:`Curve.write`."""
    return Curve(json.loads(text)).points


def _merged(before: int, first: Point, second: Point) -> Point:
    """The mean of two points after step ``before``, in which each step has the same weight."""
    share = (first.step - before) / (second.step - before)

    def mean(one: float, other: float) -> float:
        if math.isnan(one) or math.isnan(other):  # a metric that is undefined for one of them
            return other if math.isnan(one) else one
        return share * one + (1 - share) * other

    return second._replace(
        loss=share * first.loss + (1 - share) * second.loss,
        metrics={name: mean(first.metrics[name], value) for name, value in second.metrics.items()},
        images_per_second=mean(first.images_per_second, second.images_per_second),
    )
