"""Matches stored weights with a model's variables: all that are not skipped, or none."""

from __future__ import annotations

import fnmatch
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError

_NAMED = 6
"""Number of names of each kind in a message."""

Shape = tuple[int, ...]


class OtherShape(NamedTuple):
    """A variable whose shape differs from its value's."""

    path: str
    in_file: Shape
    in_model: Shape


class MismatchError(InitialWeightsError):
    """The weights belong to another model."""

    def __init__(
        self,
        source: pathlib.Path,
        missing: Sequence[str],
        unknown: Sequence[str],
        shapes: Sequence[OtherShape],
    ):
        problems = [
            _describe("not in the file", missing),
            _describe("not in the model", unknown),
            _describe(
                "with another shape",
                [f"{each.path} {each.in_file}, in the model {each.in_model}" for each in shapes],
            ),
        ]
        super().__init__(
            source,
            f"does not match the model: {'; '.join(filter(None, problems))}. Correct the file, or "
            "list the variables to skip in train.initial_weights_skip",
        )
        self.missing = tuple(missing)
        """Paths of variables without a value."""
        self.unknown = tuple(unknown)
        """Names of values without a variable."""
        self.shapes = tuple(shapes)


class UnusedSkipError(InitialWeightsError):
    """``train.initial_weights_skip`` names no variable, or all."""

    def __init__(self, source: pathlib.Path, patterns: Sequence[str], problem: str):
        super().__init__(source, problem)
        self.patterns = tuple(patterns)


def match(
    source: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    variables: Mapping[str, Shape],
    skip: Sequence[str],
) -> dict[str, np.ndarray]:
    """The values to assign, by variable path.

    Args:
        variables: path -> shape, of the model.
        skip: paths, which include all paths below them, and patterns of :mod:`fnmatch`.

    Raises:
        MismatchError: a variable has no value or one of another shape, or a value no variable,
            and ``skip`` does not name it.
        UnusedSkipError: ``skip`` names no variable, or all.
    """
    names = {*weights, *variables}
    unused = [pattern for pattern in skip if not any(_names(pattern, name) for name in names)]
    if unused:
        raise UnusedSkipError(
            source,
            unused,
            f"train.initial_weights_skip: {', '.join(unused)} names no variable; the variables "
            f"are {_list(sorted(variables))}",
        )
    skipped = {name for name in names if any(_names(pattern, name) for pattern in skip)}
    needed = {path: shape for path, shape in variables.items() if path not in skipped}
    available = {name: value for name, value in weights.items() if name not in skipped}
    if not needed:
        raise UnusedSkipError(
            source, skip, "train.initial_weights_skip leaves nothing to load; name fewer variables"
        )
    missing = sorted(needed.keys() - available.keys())
    unknown = sorted(available.keys() - needed.keys())
    shapes = [
        OtherShape(path, available[path].shape, shape)
        for path, shape in sorted(needed.items())
        if path in available and available[path].shape != shape
    ]
    if missing or unknown or shapes:
        raise MismatchError(source, missing, unknown, shapes)
    return {path: available[path] for path in needed}


def _names(pattern: str, name: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}/") or fnmatch.fnmatchcase(name, pattern)


def _describe(problem: str, names: Sequence[str]) -> str:
    return f"{len(names)} {problem} ({_list(names)})" if names else ""


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
