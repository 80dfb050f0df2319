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

    def __init__(self, pipeline, platform):
        self.pipeline = pipeline
        self.platform = platform
        self.more: list[Any] = []
        self.root, self.components = pipeline["root"], pipeline["components"]
        self.tasks = self.root["dag"]["tasks"]
        self.executors = pipeline["deploymentSpec"]["executors"]
        self.container = self.executors["exec-train"]["container"]
        executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        self.pod = executors["exec-train"]

    def change(self, changes):
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
    def text(self):
        return yaml.safe_dump_all([self.pipeline, self.platform, *self.more])


@functools.cache
def _accepted():
    return tuple(yaml.safe_load_all(ACCEPTED.read_text()))


@pytest.fixture
def sample():
    return Sample(*copy.deepcopy(_accepted()))
