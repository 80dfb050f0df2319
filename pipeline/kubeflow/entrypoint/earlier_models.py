"""Records of good artifacts at an address that all runs of a pipeline share.

``PIPELINE/FOLDER/TIME-IDENTITY.json``, TIME in nanoseconds: a step has no metadata store. IDENTITY,
by :func:`stagecraft.components.base_model.identity`, is that of the examples of a blessed or pushed
model, or of the statistics that AnomalyGate let pass.
"""

from __future__ import annotations

import json
import logging
import posixpath
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict

from tfx.dsl.io import fileio
from tfx.types.standard_artifacts import ExampleStatistics, Model

from stagecraft.components import last_statistics
from stagecraft.components.base_model import EXAMPLES, NoModelError, identity
from stagecraft.components.object_store import filesystem
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import LOOKUP
from stagecraft.trainer_module.settings.train import LAST_PUSHED, RUN

BLESSED, PUSHED, CHECKED = "blessed_models", "pushed_models", "checked_statistics"
"""Folders."""

SUBJECTS = {
    BLESSED: Model.TYPE_NAME,
    PUSHED: Model.TYPE_NAME,
    CHECKED: ExampleStatistics.TYPE_NAME,
}
"""Folder -> type of the artifact that was found to be good."""


class Artifact(TypedDict):
    """The data that a step needs to read an artifact."""

    uri: str
    metadata: dict[str, Any]


def record(pipeline: str, artifacts: dict[str, Artifact], folder: str = BLESSED) -> None:
    """Records an artifact and its verdict, by their types, below the pipeline's address."""
    subject = artifacts[SUBJECTS[folder]]
    same = subject["metadata"].get(EXAMPLES, "")
    if folder == CHECKED:
        same = identity([subject["uri"]])
    address = posixpath.join(pipeline, folder, f"{time.time_ns():020d}-{same}.json")
    filesystem.write_atomically(address, json.dumps(artifacts, sort_keys=True).encode())


def recorded(
    pipeline: str, folder: str = BLESSED, before: str | None = None
) -> Iterator[dict[str, Artifact]]:
    """The recorded artifacts that still exist, with their verdicts, the newest first.

    Args:
        before: leaves out those from the first one of this identity on.
    """
    kind = SUBJECTS[folder]
    folder = posixpath.join(pipeline, folder)
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    names = sorted(name for name in names if name.endswith(".json"))
    again = (place for place, name in enumerate(names) if name.endswith(f"-{before}.json"))
    for name in reversed(names[: next(again, None)]):
        with fileio.open(posixpath.join(folder, name), "rb") as file:
            artifacts: dict[str, Artifact] = json.loads(file.read())
        if fileio.exists(artifacts[kind]["uri"]):
            yield artifacts


def look_up(
    invocation: Invocation,
    pipeline: str,
    output_types: dict[str, str],
    choice: str = "",
    resolved: Iterable[str] = (),
) -> None:
    """Writes an address and properties, or nothing, for each output.

    Args:
        choice: of a :class:`stagecraft.components.BaseModel`, whose inputs are the examples of this
            run, or of a :class:`stagecraft.components.LastStatistics`, whose input are its
            statistics; empty: the last blessed model, but none of the inputs.
        resolved: inputs that another resolver found.

    Raises:
        NoModelError: the run of ``run:ID`` has no model.
    """
    given = [*invocation.artifacts("inputs").values()]
    given += [artifact for name in resolved for artifact in invocation.take_resolved(name)]
    inputs = [artifact["uri"] for artifact in given]
    if choice.startswith(RUN):
        found = _of_run(pipeline, choice)
    else:
        folder = {LAST_PUSHED: PUSHED, last_statistics.CHOICE: CHECKED}.get(choice, BLESSED)
        found_all = recorded(pipeline, folder, identity(inputs) if choice else None)
        others = (each for each in found_all if choice or each["Model"]["uri"] not in inputs)
        found = next(others, {})
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


def _of_run(pipeline: str, choice: str) -> dict[str, Artifact]:
    """The model that a run's Trainer wrote; a run that took it from the cache wrote none."""
    folder = posixpath.join(pipeline, choice.removeprefix(RUN), "Trainer")
    for attempt in sorted(fileio.listdir(folder)) if fileio.exists(folder) else []:
        model = posixpath.join(folder, attempt, "model")
        if fileio.exists(model):
            return {"Model": Artifact(uri=model, metadata={})}
    raise NoModelError(choice, f"there is no model in {folder}")
