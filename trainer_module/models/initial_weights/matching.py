"""Which variables of a model take which values: all that are not skipped, or none at all."""

from __future__ import annotations

import fnmatch
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError

_NAMED = 6
"""Of each kind, in a message."""

Shape = tuple[int, ...]


class OtherShape(NamedTuple):
    """A variable that has another shape than its value."""

    path: str
    in_file: Shape
    in_model: Shape


class MismatchError(InitialWeightsError):
    """The weights are those of another model."""

    def __init__(
        self,
        source: pathlib.Path,
        missing: Sequence[str],
        unknown: Sequence[str],
        shapes: Sequence[OtherShape],
    ):
        told = [
            _told("not in it", missing),
            _told("not in the model", unknown),
            _told(
                "of another shape",
                [f"{each.path} {each.in_file}, in the model {each.in_model}" for each in shapes],
            ),
        ]
        super().__init__(
            source,
            f"does not match the model: {'; '.join(part for part in told if part)}. Correct it, "
            "or name in train.initial_weights_skip what is not to be loaded",
        )
        self.missing = tuple(missing)
        """Paths of variables that have no value."""
        self.unknown = tuple(unknown)
        """Names of values that have no variable."""
        self.shapes = tuple(shapes)


class UnusedSkipError(InitialWeightsError):
    """A part of ``train.initial_weights_skip`` that is no variable's, or all of them are."""

    def __init__(self, source: pathlib.Path, patterns: Sequence[str], problem: str):
        super().__init__(source, problem)
        self.patterns = tuple(patterns)


def match(
    source: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    variables: Mapping[str, Shape],
    skip: Sequence[str],
) -> dict[str, np.ndarray]:
    """The values to be assigned, by variable path.

    Args:
        source: where ``weights`` are from, for messages.
        weights: by variable path.
        variables: path -> shape, of the model.
        skip: paths, also of what lies below them, and patterns as :mod:`fnmatch` has them.

    Raises:
        MismatchError: a variable has no value or one of another shape, or a value no variable,
            and ``skip`` does not name it.
        UnusedSkipError: ``skip`` names what is nowhere, or leaves nothing.
    """
    names = {*weights, *variables}
    unused = [pattern for pattern in skip if not any(_names(pattern, name) for name in names)]
    if unused:
        raise UnusedSkipError(
            source,
            unused,
            f"train.initial_weights_skip: {', '.join(unused)} names no variable; there are "
            f"{_list(sorted(variables))}",
        )
    skipped = {name for name in names if any(_names(pattern, name) for pattern in skip)}
    wanted = {path: shape for path, shape in variables.items() if path not in skipped}
    given = {name: value for name, value in weights.items() if name not in skipped}
    if not wanted:
        raise UnusedSkipError(
            source, skip, "train.initial_weights_skip leaves nothing to load; name less there"
        )
    missing = sorted(wanted.keys() - given.keys())
    unknown = sorted(given.keys() - wanted.keys())
    shapes = [
        OtherShape(path, given[path].shape, shape)
        for path, shape in sorted(wanted.items())
        if path in given and given[path].shape != shape
    ]
    if missing or unknown or shapes:
        raise MismatchError(source, missing, unknown, shapes)
    return {path: given[path] for path in wanted}


def _names(pattern: str, name: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}/") or fnmatch.fnmatchcase(name, pattern)


def _told(what: str, names: Sequence[str]) -> str:
    return f"{len(names)} {what} ({_list(names)})" if names else ""


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
