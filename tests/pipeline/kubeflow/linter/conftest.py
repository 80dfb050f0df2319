from __future__ import annotations

import copy
import functools
import operator
import pathlib
from typing import Any

import pytest
import yaml

ACCEPTED = pathlib.Path(__file__).parent / "accepted.yaml"


class Sample:
    """A file that is accepted: its two documents, to be changed, and its text."""

    def __init__(self, pipeline: dict[str, Any], platform: dict[str, Any]):
        self.pipeline = pipeline
        self.platform = platform
        self.more: list[Any] = []

    @property
    def root(self) -> dict[str, Any]:
        return self.pipeline["root"]

    @property
    def tasks(self) -> dict[str, Any]:
        return self.root["dag"]["tasks"]

    @property
    def components(self) -> dict[str, Any]:
        return self.pipeline["components"]

    @property
    def executors(self) -> dict[str, Any]:
        return self.pipeline["deploymentSpec"]["executors"]

    @property
    def container(self) -> dict[str, Any]:
        return self.executors["exec-train"]["container"]

    @property
    def pod(self) -> dict[str, Any]:
        return self.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]

    def change(self, changes: Any) -> None:
        """Sets ``{path in the pipeline: value}``; ``...`` deletes. Or calls a function."""
        if callable(changes):
            changes(self)
            return
        for path, value in changes.items():
            *folders, name = path.split(".")
            place = functools.reduce(operator.getitem, folders, self.pipeline)
            if value is ...:
                del place[name]
            else:
                place[name] = value

    @property
    def text(self) -> str:
        return yaml.safe_dump_all([self.pipeline, self.platform, *self.more])


@functools.cache
def _accepted() -> tuple[Any, ...]:
    return tuple(yaml.safe_load_all(ACCEPTED.read_text()))


@pytest.fixture
def sample() -> Sample:
    return Sample(*copy.deepcopy(_accepted()))
