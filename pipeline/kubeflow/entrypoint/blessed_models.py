"""Which models were blessed: an object for each, at an address that all runs of a pipeline know.

``PIPELINE/blessed_models/TIME.json``, TIME in nanoseconds. Kubeflow has no resolvers, and its
metadata store cannot be asked from within a step.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Collection
from typing import Any, TypedDict

from tfx.dsl.io import fileio

from stagecraft.components.object_store import filesystem

_FOLDER = "blessed_models"


class Artifact(TypedDict):
    """What a step has to know of an artifact to read it."""

    uri: str
    metadata: dict[str, Any]


def record(pipeline: str, artifacts: dict[str, Artifact]) -> None:
    """Notes that a model was blessed.

    Args:
        pipeline: address of what belongs to the pipeline.
        artifacts: the ``Model`` and its ``ModelBlessing``.
    """
    address = posixpath.join(pipeline, _FOLDER, f"{time.time_ns():020d}.json")
    filesystem.write_atomically(address, json.dumps(artifacts, sort_keys=True).encode())


def latest(pipeline: str, candidates: Collection[str]) -> dict[str, Artifact]:
    """The model blessed last that is still there, and its blessing; empty if there is none.

    Args:
        pipeline: address of what belongs to the pipeline.
        candidates: addresses of models that are not meant.
    """
    folder = posixpath.join(pipeline, _FOLDER)
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    for name in sorted((name for name in names if name.endswith(".json")), reverse=True):
        with fileio.open(posixpath.join(folder, name), "rb") as file:
            artifacts: dict[str, Artifact] = json.loads(file.read())
        model = artifacts["Model"]["uri"]
        if model not in candidates and fileio.exists(model):
            return artifacts
    return {}
