"""One run in ML Metadata: its context, executions and artifacts, and how each component ended.

All readers go through here.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_metadata
from google.protobuf import struct_pb2
from ml_metadata.proto import metadata_store_pb2

from stagecraft.components.metadata import file

Properties = dict[str, Any]
_RUN = "pipeline_run"  # TFX's type of a run's context
_NOTE = "stagecraft_"  # prefix of custom properties of this context, which TFX does not change


_ONE_VALUE = "__value__"
"""Key of a struct's only value (``_JSON_SINGLE_VALUE_KEY`` of ``tfx.types.artifact``)."""


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


class Notes(NamedTuple):
    """Facts that a run stores before its first step, so that a failed run has them, too.

    An empty field is unknown.
    """

    nodes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # IDs of the nodes that a partial run skips
    command: str = ""  # the command line, without secrets
    settings: str = ""  # YAML of the settings that differ from the default
    span_read: str = ""  # digest of what a run depends on up to AnomalyGate, before the first step
    span_whole: str = ""  # the same of a whole run


def write_notes(store: ml_metadata.MetadataStore, run_id: str, notes: Notes) -> None:
    """Adds notes to the context of a run."""
    run = store.get_context_by_type_and_name(_RUN, run_id)
    for name, value in notes._asdict().items():
        text = value if isinstance(value, str) else json.dumps(value)
        run.custom_properties[f"{_NOTE}{name}"].string_value = text
    store.put_contexts([run])


class RunMetadata:
    """The metadata of one run in a store. Each property is read when it is first asked for."""

    def __init__(
        self, store: ml_metadata.MetadataStore, context: metadata_store_pb2.Context
    ) -> None:
        self._store = store
        self.context = context

    @classmethod
    def find(cls, store: ml_metadata.MetadataStore, run_id: str) -> RunMetadata | None:
        """The run with this ID, or None."""
        context = store.get_context_by_type_and_name(_RUN, run_id)
        return None if context is None else cls(store, context)

    @classmethod
    def matching(cls, store: ml_metadata.MetadataStore, start: str) -> list[RunMetadata]:
        """The run with this ID; if there is none, all runs whose IDs begin with it."""
        if found := cls.find(store, start):
            return [found]
        contexts = store.get_contexts_by_type(_RUN)
        return [cls(store, each) for each in contexts if each.name.startswith(start)]

    @classmethod
    def open(cls, metadata_db: str | os.PathLike[str], run_id: str) -> RunMetadata | None:
        """The run in an SQLite file; None if the file or the run does not exist."""
        if not os.path.exists(metadata_db):
            return None
        return cls.find(file.open_store(metadata_db), run_id)

    @property
    def pipeline(self) -> str:
        """The pipeline's name; empty until TFX has linked the run to its pipeline."""
        # A run that reuses outputs of an earlier run has that run as a parent, too.
        parents = self._store.get_parent_contexts_by_context(self.context.id)
        return next((str(each.name) for each in parents if each.type == "pipeline"), "")

    @property
    def notes(self) -> Notes:
        """The notes that the run took before its first step."""
        texts = {
            name.removeprefix(_NOTE): value.string_value
            for name, value in self.context.custom_properties.items()
            if name.removeprefix(_NOTE) in Notes._fields and value.string_value
        }
        lists = {
            name: tuple(json.loads(texts[name])) for name in ("nodes", "skipped") if name in texts
        }
        return Notes(**texts | lists)

    @functools.cached_property
    def executions(self) -> list[metadata_store_pb2.Execution]:
        """All executions, oldest first."""
        return sorted(
            self._store.get_executions_by_context(self.context.id),
            key=lambda execution: (execution.create_time_since_epoch, execution.id),
        )

    def node(self, execution: metadata_store_pb2.Execution) -> str:
        """ID of the pipeline's node that an execution belongs to; empty if unknown."""
        return node_of(self._store, execution.id)

    def original(
        self, execution: metadata_store_pb2.Execution
    ) -> metadata_store_pb2.Execution | None:
        """The execution that computed the outputs of a cached or reused one."""
        events = self._store.get_events_by_artifact_ids(self._output_ids([execution.id]))
        producers = {event.execution_id for event in events if _is_output(event)}
        return next(
            (
                each
                for each in self._store.get_executions_by_id(sorted(producers))
                if each.last_known_state == metadata_store_pb2.Execution.COMPLETE
            ),
            None,
        )

    def outputs(self) -> list[metadata_store_pb2.Artifact]:
        """Output artifacts of all executions, oldest first."""
        ids = self._output_ids([execution.id for execution in self.executions])
        return sorted(self._store.get_artifacts_by_id(ids), key=lambda artifact: int(artifact.id))

    def _output_ids(self, executions: list[int]) -> list[int]:
        events = self._store.get_events_by_execution_ids(executions)
        return sorted({event.artifact_id for event in events if _is_output(event)})


def run_contexts(metadata_db: str | os.PathLike[str]) -> list[metadata_store_pb2.Context]:
    """Contexts of all runs in an SQLite file, newest first."""
    contexts = file.open_store(metadata_db).get_contexts_by_type(_RUN)
    return sorted(contexts, key=lambda context: -int(context.id))


def producer(store: ml_metadata.MetadataStore, artifact_id: int) -> str:
    """ID of the pipeline's node that made an artifact; empty if unknown."""
    events = store.get_events_by_artifact_ids([artifact_id])
    for event in sorted(filter(_is_output, events), key=lambda each: int(each.execution_id)):
        if node := node_of(store, event.execution_id):
            return node
    return ""


def sources(store: ml_metadata.MetadataStore, artifact_ids: Sequence[int]) -> set[int]:
    """IDs of the inputs of the executions that made these artifacts."""
    events = store.get_events_by_artifact_ids(artifact_ids)
    makers = sorted({event.execution_id for event in events if _is_output(event)})
    read = store.get_events_by_execution_ids(makers)
    return {each.artifact_id for each in read if each.type == metadata_store_pb2.Event.INPUT}


def origin(store: ml_metadata.MetadataStore, artifact_id: int, kind: str) -> list[int]:
    """IDs of the artifacts of a type that the execution read which made an artifact."""
    artifacts = store.get_artifacts_by_id(sorted(sources(store, [artifact_id])))
    return [int(artifact.id) for artifact in artifacts if artifact.type == kind]


def node_of(store: ml_metadata.MetadataStore, execution_id: int) -> str:
    """ID of the pipeline's node that an execution belongs to; empty if unknown."""
    # TFX names a node's context PIPELINE.NODE.
    for context in store.get_contexts_by_execution(execution_id):
        if context.type == "node":
            return str(context.name.partition(".")[2])
    return ""


def of_artifact(artifact: metadata_store_pb2.Artifact) -> Properties:
    """All properties of an artifact as plain Python values.

    On Kubeflow, TFX moves custom properties to those of the same name that the type declares.
    """
    return values(artifact.properties) | values(artifact.custom_properties)


def values(properties: Mapping[str, metadata_store_pb2.Value]) -> Properties:
    """Properties of an execution or an artifact as plain Python values.

    On Kubeflow, TFX makes a struct with one value of each, and a float of each number.
    """
    found = {name: getattr(value, value.WhichOneof("value")) for name, value in properties.items()}
    return {
        name: value[_ONE_VALUE]
        if isinstance(value, struct_pb2.Struct) and _ONE_VALUE in value
        else value
        for name, value in found.items()
    }


def _is_output(event: metadata_store_pb2.Event) -> bool:
    return bool(event.type == metadata_store_pb2.Event.OUTPUT)


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


def component_runs(run: RunMetadata | None) -> list[ComponentRun]:
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
    noted = execution.custom_properties
    result = json.loads((RESULT in noted and noted[RESULT].string_value) or "{}")
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
