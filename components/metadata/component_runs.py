"""When each component of a run ran and how it ended, from ML Metadata."""

from __future__ import annotations

import dataclasses
import json

from ml_metadata.proto import metadata_store_pb2

from stagecraft.components.metadata.run_metadata import RunMetadata

_State = metadata_store_pb2.Execution.State

RESULT = "__execution_result__"
"""Custom property of an execution that failed: a ``tfx.orchestration.ExecutionResult`` in JSON
(tfx.orchestration.portable.mlmd.execution_lib). TFX, our launcher and the sweep write it."""

CANCELLED, UNKNOWN = 1, 2
"""Codes of a result, from ``google.rpc.Code``: the execution was stopped; it failed."""

NOT_RUN = "not run"  # state of a component that the run did not reach
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
    begin: float = 0.0  # seconds after the first component of the run began
    seconds: float = 0.0  # for a cached component: the time of the cache lookup
    original_seconds: float | None = None
    """For a cached component: the time of the execution that computed the outputs."""
    cause: str = ""  # why it failed


def read(run: RunMetadata | None) -> list[ComponentRun]:
    """The components of a run: those that began, in order, then those that did not."""
    if run is None:
        return []
    begun = [_begun(run, each) for each in run.executions if each.last_known_state in _STATES]
    names, notes = {each.name for each in begun}, run.notes
    return begun + [
        ComponentRun(name=name, state="skipped" if name in notes.skipped else NOT_RUN)
        for name in notes.nodes
        if name not in names
    ]


def result(message: str, code: int) -> str:
    """The value of ``RESULT``."""
    return json.dumps({"resultMessage": message, "code": code})


def _begun(run: RunMetadata, execution: metadata_store_pb2.Execution) -> ComponentRun:
    state, original = _STATES[execution.last_known_state], None
    result = json.loads(execution.custom_properties[RESULT].string_value or "{}")
    result = result if isinstance(result, dict) else {}
    if state == "failed" and result.get("code") == CANCELLED:
        state = "stopped"
    elif state == "cached":
        original = run.original(execution)
    cause = str(result.get("resultMessage", "")).strip() if state == "failed" else ""
    first = run.executions[0].create_time_since_epoch
    return ComponentRun(
        name=run.node(execution) or "?",
        state=state,
        begin=(execution.create_time_since_epoch - first) / 1000,
        seconds=_seconds(execution),
        original_seconds=_seconds(original) if original else None,
        cause=cause.rpartition("\n")[2] if cause.startswith("Traceback") else cause,
    )


def _seconds(execution: metadata_store_pb2.Execution) -> float:
    return (execution.last_update_time_since_epoch - execution.create_time_since_epoch) / 1000
