"""When each component of a run ran and how it ended, from ML Metadata."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ml_metadata.proto import metadata_store_pb2

from stagecraft.components.metadata.run_metadata import RunMetadata

_State = metadata_store_pb2.Execution.State

RESULT = "__execution_result__"
"""Custom property of an execution that failed: a ``tfx.orchestration.ExecutionResult`` in JSON
(tfx.orchestration.portable.mlmd.execution_lib). TFX, our launcher and the sweep write it."""

CANCELLED, UNKNOWN = 1, 2
"""Codes of a result, from ``google.rpc.Code``: the execution was stopped; it failed."""

NOT_RUN = "not run"
"""State of a component that the run did not reach."""

_STATES = {
    _State.COMPLETE: "done",
    _State.CACHED: "cached",
    _State.FAILED: "failed",
    _State.RUNNING: "running",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComponentRun:
    """When a component ran, and how it ended."""

    name: str
    state: str
    """``done``, ``cached``, ``failed``, ``running``, ``stopped`` (before its end), ``skipped`` (by
    a partial run) or ``not run`` (the run did not reach it)."""
    begin: float
    """Seconds after the first component of the run began."""
    seconds: float
    """For a cached component: the time of the cache lookup."""
    original_seconds: float | None
    """For a cached component: the time of the execution that computed the outputs."""
    cause: str = ""
    """Why it failed."""


def read(run: RunMetadata | None) -> list[ComponentRun]:
    """The components of a run: those that began, in order, then those that did not."""
    if run is None:
        return []
    executions = run.executions
    first = executions[0].create_time_since_epoch if executions else 0
    begun = [
        ComponentRun(
            name=run.node(execution) or "?",
            state=_state(execution),
            begin=(execution.create_time_since_epoch - first) / 1000,
            seconds=_seconds(execution),
            original_seconds=_original_seconds(run, execution),
            cause=_cause(execution) if _state(execution) == "failed" else "",
        )
        for execution in executions
        if execution.last_known_state in _STATES
    ]
    names, notes = {each.name for each in begun}, run.notes
    return begun + [
        ComponentRun(
            name=name,
            state="skipped" if name in notes.skipped else NOT_RUN,
            begin=0.0,
            seconds=0.0,
            original_seconds=None,
        )
        for name in notes.nodes
        if name not in names
    ]


def result(message: str, code: int) -> str:
    """The value of ``RESULT``."""
    return json.dumps({"resultMessage": message, "code": code})


def _result(execution: metadata_store_pb2.Execution) -> dict[str, Any]:
    parsed = json.loads(execution.custom_properties[RESULT].string_value or "{}")
    return parsed if isinstance(parsed, dict) else {}


def _state(execution: metadata_store_pb2.Execution) -> str:
    state = _STATES[execution.last_known_state]
    return "stopped" if state == "failed" and _result(execution).get("code") == CANCELLED else state


def _cause(execution: metadata_store_pb2.Execution) -> str:
    text = str(_result(execution).get("resultMessage", "")).strip()
    return text.rpartition("\n")[2] if text.startswith("Traceback") else text


def _seconds(execution: metadata_store_pb2.Execution) -> float:
    return (execution.last_update_time_since_epoch - execution.create_time_since_epoch) / 1000


def _original_seconds(run: RunMetadata, execution: metadata_store_pb2.Execution) -> float | None:
    if execution.last_known_state != _State.CACHED or not (original := run.original(execution)):
        return None
    return _seconds(original)
