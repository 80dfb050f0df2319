"""Records of spans that a gate passed, at an address that all runs of a pipeline share.

``PIPELINE/spans/SPAN-VERSION-TIME.json``, TIME in nanoseconds: a step has no metadata store.
"""

from __future__ import annotations

import json
import logging
import posixpath
import time
from typing import Any

from tfx.dsl.io import fileio

from stagecraft.components.example_gen import spans
from stagecraft.components.object_store import filesystem
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import LOOKUP

_FOLDER = "spans"


def record(pipeline: str, uri: str, metadata: dict[str, Any]) -> None:
    """Records examples, if they have a span."""
    if spans.SPAN not in metadata:
        return
    numbers = int(metadata[spans.SPAN]), int(metadata.get(spans.VERSION, 0)), time.time_ns()
    name = "-".join(f"{number:020d}" for number in numbers)
    text = json.dumps({"uri": uri, "metadata": metadata}, sort_keys=True)
    filesystem.write_atomically(posixpath.join(pipeline, _FOLDER, f"{name}.json"), text.encode())


def look_up(invocation: Invocation, pipeline: str, size: int) -> None:
    """Writes addresses and properties of the examples of a window; its end is the only input."""
    [newest] = invocation.artifacts("inputs").values()
    last = newest.get("metadata", {}).get(spans.SPAN)
    found = _others(newest, pipeline, int(last), size) if last is not None else []
    found.append({"uri": newest["uri"], "metadata": newest.get("metadata", {})})
    names = [each["metadata"].get(spans.NAME, each["uri"]) for each in found]
    shown = {"name": LOOKUP, "metadata": {"examples": ", ".join(map(str, names))}}
    invocation.write(
        {
            "parameterValues": {"examples": json.dumps(found, sort_keys=True)},
            "artifacts": {LOOKUP: {"artifacts": [shown]}},
        }
    )
    for each in found:
        logging.info("%s", each["uri"])


def _others(newest: dict[str, Any], pipeline: str, last: int, size: int) -> list[dict[str, Any]]:
    folder = posixpath.join(pipeline, _FOLDER)
    known = {}
    for name in fileio.listdir(folder) if fileio.exists(folder) else []:
        if name.endswith(".json") and last - size < int(name.partition("-")[0]) < last:
            with fileio.open(posixpath.join(folder, name), "rb") as file:
                known[name] = json.loads(file.read())
    there = {name: each["metadata"] for name, each in known.items() if fileio.exists(each["uri"])}
    return [known[name] for name in spans.select(newest["metadata"], there)]
