"""When each component of a run began and ended, from ML Metadata.

A pipeline that keeps its metadata in SQLite can be asked; Kubeflow's store cannot, from within a
step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import ml_metadata
from ml_metadata.proto import metadata_store_pb2

from stagecraft.components.metadata import run_notes
from stagecraft.components.metadata.file import open_store
from stagecraft.components.report.facts import Component

_State = metadata_store_pb2.Execution.State

RESULT = "__execution_result__"
"""Custom property of an execution, in which TFX, our launcher or the sweep note how it failed: a
``tfx.orchestration.ExecutionResult`` in JSON (tfx.orchestration.portable.mlmd.execution_lib)."""

CANCELLED, UNKNOWN = 1, 2
"""Codes of a result, those of ``google.rpc.Code``: it was stopped; it failed."""

NOT_RUN = "not run"
"""State of a component that the run has not come to."""

_STATES = {
    _State.COMPLETE: "done",
    _State.CACHED: "cached",
    _State.FAILED: "failed",
    _State.RUNNING: "running",
}


def read(metadata_db: str, run_id: str) -> list[Component]:
    """The components of a run: those that were started, in order, then those that were not.

    Args:
        metadata_db: SQLite file.
        run_id: of the run.

    Returns:
        Nothing where there is no such file, or no such run in it.

    Raises:
        MetadataFileError: the file cannot be opened.
    """
    if not os.path.exists(metadata_db):
        return []
    store = open_store(metadata_db)
    run = store.get_context_by_type_and_name("pipeline_run", run_id)
    if run is None:
        return []
    executions = sorted(
        store.get_executions_by_context(run.id),
        key=lambda execution: execution.create_time_since_epoch,
    )
    first = executions[0].create_time_since_epoch if executions else 0
    begun = [
        Component(
            name=_node(store, execution.id),
            state=_state(execution),
            begin=(execution.create_time_since_epoch - first) / 1000,
            seconds=_seconds(execution),
            original_seconds=(
                _original_seconds(store, execution)
                if execution.last_known_state == _State.CACHED
                else None
            ),
            cause=_cause(execution) if _state(execution) == "failed" else "",
        )
        for execution in executions
        if execution.last_known_state in _STATES
    ]
    return begun + _not_begun(run_notes.read(run), {each.name for each in begun})


def notes(metadata_db: str, run_id: str) -> run_notes.Notes:
    """What a run noted of itself; empty where there is no such file, or no such run in it.

    Args:
        metadata_db: SQLite file.
        run_id: of the run.

    Raises:
        MetadataFileError: the file cannot be opened.
    """
    if not os.path.exists(metadata_db):
        return run_notes.Notes()
    run = open_store(metadata_db).get_context_by_type_and_name("pipeline_run", run_id)
    return run_notes.read(run) if run else run_notes.Notes()


def _not_begun(notes: run_notes.Notes, begun: set[str]) -> list[Component]:
    return [
        Component(
            name=name,
            state="skipped" if name in notes.skipped else NOT_RUN,
            begin=0.0,
            seconds=0.0,
            original_seconds=None,
        )
        for name in notes.nodes
        if name not in begun
    ]


def pipeline_of(store: ml_metadata.MetadataStore, run: int) -> str:
    """Name of the pipeline that a run's context belongs to; empty in the moment when it begins."""
    # A run that took outputs of an earlier one has that as a parent, too.
    parents = store.get_parent_contexts_by_context(run)
    return next((str(each.name) for each in parents if each.type == "pipeline"), "")


def _seconds(execution: metadata_store_pb2.Execution) -> float:
    return (execution.last_update_time_since_epoch - execution.create_time_since_epoch) / 1000


def result(message: str, code: int) -> str:
    """The value of ``RESULT``."""
    return json.dumps({"resultMessage": message, "code": code})


def _result(execution: metadata_store_pb2.Execution) -> dict[str, Any]:
    found = json.loads(execution.custom_properties[RESULT].string_value or "{}")
    return found if isinstance(found, dict) else {}


def _state(execution: metadata_store_pb2.Execution) -> str:
    state = _STATES[execution.last_known_state]
    return "stopped" if state == "failed" and _result(execution).get("code") == CANCELLED else state


def _cause(execution: metadata_store_pb2.Execution) -> str:
    """What was noted of a failure."""
    text = str(_result(execution).get("resultMessage", "")).strip()
    if text.startswith("Traceback"):
        text = text.rpartition("\n")[2]
    return text


def _node(store: ml_metadata.MetadataStore, execution: int) -> str:
    for context in store.get_contexts_by_execution(execution):
        if context.type == "node":
            return str(context.name.partition(".")[2])
    return "?"


def _original_seconds(
    store: ml_metadata.MetadataStore, execution: metadata_store_pb2.Execution
) -> float | None:
    made = original(store, execution)
    return _seconds(made) if made else None


def original(
    store: ml_metadata.MetadataStore, execution: metadata_store_pb2.Execution
) -> metadata_store_pb2.Execution | None:
    """The execution whose outputs this one has from the cache."""
    outputs = metadata_store_pb2.Event.OUTPUT
    artifacts = [
        event.artifact_id
        for event in store.get_events_by_execution_ids([execution.id])
        if event.type == outputs
    ]
    makers: Sequence[int] = [
        event.execution_id
        for event in store.get_events_by_artifact_ids(artifacts)
        if event.type == outputs
    ]
    made = [
        found
        for found in store.get_executions_by_id(sorted(set(makers)))
        if found.last_known_state == _State.COMPLETE
    ]
    return made[0] if made else None
