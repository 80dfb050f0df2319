"""Records of artifacts at an address that all runs of a pipeline share: no step has a store.

``PIPELINE/FOLDER/TIME-IDENTITY.json``, TIME in nanoseconds. IDENTITY is that of the examples of a
blessed or pushed model, or of the statistics that AnomalyGate let pass, by
:func:`stagecraft.components.resolvers.examples_identity`; or the number of a span.
"""

from __future__ import annotations

import itertools
import json
import logging
import posixpath
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict

from tfx.dsl.io import fileio
from tfx.types.standard_artifacts import Examples, ExampleStatistics, Model, PushedModel

from stagecraft.components import resolvers
from stagecraft.components.example_gen import spans
from stagecraft.components.object_store import filesystem
from stagecraft.components.resolvers import EXAMPLES_PROPERTY, NoModelError, examples_identity
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import LOOKUP
from stagecraft.trainer_module.settings.train import LAST_PUSHED, RUN

BLESSED, PUSHED, CHECKED = "blessed_models", "pushed_models", "checked_statistics"
SPANS = "spans"
"""Folders."""

SUBJECTS = {
    BLESSED: Model.TYPE_NAME,
    PUSHED: Model.TYPE_NAME,
    CHECKED: ExampleStatistics.TYPE_NAME,
    SPANS: Examples.TYPE_NAME,
}
"""Folder -> type of the artifact that was found to be good."""


class Artifact(TypedDict):
    """The data that a step needs to read an artifact."""

    uri: str
    metadata: dict[str, Any]


def record(pipeline: str, artifacts: dict[str, Artifact], folder: str = BLESSED) -> None:
    """Records an artifact and its verdict, by their types, below the pipeline's address."""
    subject = artifacts[SUBJECTS[folder]]
    same = subject["metadata"].get(EXAMPLES_PROPERTY, "")
    if folder == CHECKED:
        same = examples_identity([subject["uri"]])
    elif folder == SPANS:
        same = f"{int(subject['metadata'][spans.SPAN])}"
    address = posixpath.join(pipeline, folder, f"{time.time_ns():020d}-{same}.json")
    filesystem.write_atomically(address, json.dumps(artifacts, sort_keys=True).encode())


def recorded(
    pipeline: str, folder: str = BLESSED, before: str | None = None
) -> Iterator[dict[str, Artifact]]:
    """The recorded artifacts that still exist, with their verdicts, the newest first.

    Args:
        before: leaves out those from the first one of this identity on.
    """
    names = _names(pipeline, folder)
    again = (place for place, name in enumerate(names) if _identity(name) == before)
    return _read(pipeline, folder, reversed(names[: next(again, None)]))


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
        folder = {LAST_PUSHED: PUSHED, resolvers.STATISTICS: CHECKED}.get(choice, BLESSED)
        found_all = recorded(pipeline, folder, examples_identity(inputs) if choice else None)
        others = (each for each in found_all if choice or each["Model"]["uri"] not in inputs)
        found = _served(others) if folder == PUSHED else next(others, {})
    chosen = {name: found.get(kind) for name, kind in output_types.items()}
    _write(
        invocation,
        {name: json.dumps(each, sort_keys=True) if each else "" for name, each in chosen.items()},
        {name: each["uri"] if each else "none" for name, each in chosen.items()},
    )


def look_up_window(invocation: Invocation, pipeline: str, size: int) -> None:
    """Writes the examples of a window; its end, the only input, has passed the gate.

    Records its end for later runs, also if all steps before this one are cached: a window has the
    examples that a run used last.
    """
    [given] = invocation.artifacts("inputs").values()
    newest = Artifact(uri=given["uri"], metadata=given.get("metadata", {}))
    found: list[Artifact] = []
    if spans.SPAN in newest["metadata"]:
        last = int(newest["metadata"][spans.SPAN])
        numbers = {f"{number}" for number in range(last - size + 1, last)}
        names = [name for name in _names(pipeline, SPANS) if _identity(name) in numbers]
        known = [each[Examples.TYPE_NAME] for each in _read(pipeline, SPANS, names)]
        others = {place: each["metadata"] for place, each in enumerate(known)}
        found = [known[place] for place in spans.select(newest["metadata"], others)]
        record(pipeline, {Examples.TYPE_NAME: newest}, SPANS)
    found.append(newest)
    shown = ", ".join(str(each["metadata"].get(spans.NAME, each["uri"])) for each in found)
    _write(invocation, {"examples": json.dumps(found, sort_keys=True)}, {"examples": shown})


def _names(pipeline: str, folder: str) -> list[str]:
    """The names of records, the oldest first."""
    folder = posixpath.join(pipeline, folder)
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    return sorted(name for name in names if name.endswith(".json"))


def _identity(name: str) -> str:
    return name.removesuffix(".json").partition("-")[2]


def _read(pipeline: str, folder: str, names: Iterable[str]) -> Iterator[dict[str, Artifact]]:
    """The records whose artifacts still exist."""
    for name in names:
        with fileio.open(posixpath.join(pipeline, folder, name), "rb") as file:
            artifacts: dict[str, Artifact] = json.loads(file.read())
        if fileio.exists(artifacts[SUBJECTS[folder]]["uri"]):
            yield artifacts


def _write(invocation: Invocation, values: dict[str, str], shown: dict[str, str]) -> None:
    """Writes output parameters, and what people see of them."""
    invocation.write(
        {
            "parameterValues": values,
            "artifacts": {LOOKUP: {"artifacts": [{"name": LOOKUP, "metadata": shown}]}},
        }
    )
    for name, text in shown.items():
        logging.info("%s: %s", name, text)


def _served(pushed: Iterator[dict[str, Artifact]]) -> dict[str, Artifact]:
    """The newest of some pushed models; after a rollback, the one that is served again.

    No run recorded the rollback, but the version that is served tells it.
    """
    from stagecraft.components.pusher import rollback, versions  # with TensorFlow

    newest = next(pushed, {})
    if not newest:
        return newest
    folder, restored = posixpath.dirname(_place(newest)), None
    try:
        for number in versions.complete(folder)[:1]:
            restored = rollback.of(folder, number)
    except Exception as error:  # each file system has its own; this step may not read the folder
        logging.warning("%s: nobody knows whether there was a rollback: %s", folder, error)
    if restored is None:
        return newest
    place = posixpath.join(folder, str(restored["restored_model"]))
    found = (each for each in itertools.chain([newest], pushed) if _place(each) == place)
    return next(found, newest)


def _place(pushed: dict[str, Artifact]) -> str:
    verdict = pushed.get(PushedModel.TYPE_NAME)
    return str(verdict["metadata"].get("pushed_destination", "")) if verdict else ""


def _of_run(pipeline: str, choice: str) -> dict[str, Artifact]:
    """The model that a run's Trainer wrote; a run that took it from the cache wrote none."""
    folder = posixpath.join(pipeline, choice.removeprefix(RUN), "Trainer")
    for attempt in sorted(fileio.listdir(folder)) if fileio.exists(folder) else []:
        model = posixpath.join(folder, attempt, "model")
        if fileio.exists(model):
            return {"Model": Artifact(uri=model, metadata={})}
    raise NoModelError(choice, f"there is no model in {folder}")
