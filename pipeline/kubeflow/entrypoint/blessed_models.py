"""Records of blessed models, one object each, at an address that all runs of a pipeline share.

``PIPELINE/blessed_models/TIME.json``, TIME in nanoseconds. Kubeflow has no resolvers, and a step
cannot query its metadata store.
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
    """What a step needs to read an artifact."""

    uri: str
    metadata: dict[str, Any]


def record(pipeline: str, artifacts: dict[str, Artifact]) -> None:
    """Records a ``Model`` and its ``ModelBlessing`` at the address of the pipeline's data."""
    address = posixpath.join(pipeline, _FOLDER, f"{time.time_ns():020d}.json")
    filesystem.write_atomically(address, json.dumps(artifacts, sort_keys=True).encode())


def latest(pipeline: str, candidates: Collection[str]) -> dict[str, Artifact]:
    """The newest blessed model outside ``candidates`` (addresses) that still exists, if any."""
    folder = posixpath.join(pipeline, _FOLDER)
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    for name in sorted((name for name in names if name.endswith(".json")), reverse=True):
        with fileio.open(posixpath.join(folder, name), "rb") as file:
            artifacts: dict[str, Artifact] = json.loads(file.read())
        model = artifacts["Model"]["uri"]
        if model not in candidates and fileio.exists(model):
            return artifacts
    return {}
