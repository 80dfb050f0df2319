"""Records of blessed models at an address that all runs of a pipeline share.

``PIPELINE/blessed_models/TIME.json``, TIME in nanoseconds: a step has no metadata store.
"""

from __future__ import annotations

import json
import logging
import posixpath
import time
from collections.abc import Collection
from typing import Any, TypedDict

from tfx.dsl.io import fileio

from stagecraft.components.object_store import filesystem
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import LOOKUP

_FOLDER = "blessed_models"


class Artifact(TypedDict):
    """The data that a step needs to read an artifact."""

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


def look_up(invocation: Invocation, pipeline: str, output_types: dict[str, str]) -> None:
    """Writes an address and properties, or nothing, for each output; input models are skipped."""
    candidates = {artifact["uri"] for artifact in invocation.artifacts("inputs").values()}
    found = latest(pipeline, candidates)
    values = {
        name: json.dumps(found[kind], sort_keys=True) if kind in found else ""
        for name, kind in output_types.items()
    }
    text = {name: json.loads(value)["uri"] if value else "none" for name, value in values.items()}
    invocation.write(
        {
            "parameterValues": values,
            "artifacts": {LOOKUP: {"artifacts": [{"name": LOOKUP, "metadata": text}]}},
        }
    )
    for name, value in text.items():
        logging.info("%s: %s", name, value)
