"""Rollbacks of a served model in ML Metadata. Imports nothing heavy.

A rollback is an execution of the type ``stagecraft.Rollback``. It has the restored version as its
input, if the store knows it, and the new version as its output. The output is a PushedModel of the
Pusher: whoever resolves the last pushed model gets the one that is served.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Iterable
from typing import NamedTuple

import ml_metadata
from ml_metadata.proto import metadata_store_pb2 as pb

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import file, run_metadata

_TYPE = "stagecraft.Rollback"
_PUSHED_MODEL = "PushedModel"
_OUTPUT = "pushed_model"  # key of the Pusher's output


class Rollback(NamedTuple):
    """A version that a user put on top of the others."""

    version: int
    """The new version, a copy of an earlier one."""

    restored: int
    """The version that it is a copy of."""

    replaced: int
    """The version that was served before."""

    user: str
    reason: str
    time: float
    """Seconds since 1970, to the millisecond: ML Metadata keeps 15 digits."""


def serving_folder(metadata_db: str | os.PathLike[str]) -> str | None:
    """The folder of the newest pushed version: a path or an address; None: there is none."""
    store = file.open_store(metadata_db)
    for artifact in newest_pushed(store):
        return posixpath.dirname(artifact.custom_properties["pushed_destination"].string_value)
    return None


def write(metadata_db: str | os.PathLike[str], folder: str, rollback: Rollback) -> None:
    """Records a rollback in the folder of versions.

    Raises:
        UserError: no run of this store pushed to the folder, or another process locks the store.
    """
    try:
        _write(metadata_db, folder, rollback)
    except ml_metadata.errors.StatusError as error:
        raise UserError(
            f"{os.fspath(metadata_db)}: the rollback is not recorded ({error}), but version "
            f"{rollback.version} is served. Its rollback.json has the record.",
            file=os.fspath(metadata_db),
            record=str(rollback.version),
        ) from error


def _write(metadata_db: str | os.PathLike[str], folder: str, rollback: Rollback) -> None:
    file.check(metadata_db, write=True)
    store = file.open_store(metadata_db, write=True)
    paths = {number: posixpath.join(folder, str(number)) for number in rollback[:3]}
    known = {
        artifact.custom_properties["pushed_destination"].string_value: artifact
        for artifact in reversed(newest_pushed(store))
    }
    like = known.get(paths[rollback.restored]) or known.get(paths[rollback.replaced])
    if like is None:
        raise UserError(
            f"{os.fspath(metadata_db)}: no run of this output pushed a version to {folder}; name "
            "the output of its runs with --output.",
            setting="--output",
            file=os.fspath(metadata_db),
        )
    restored = known.get(paths[rollback.restored])
    pushed = pb.Artifact(
        type_id=like.type_id,
        uri=restored.uri if restored else paths[rollback.restored],
        state=pb.Artifact.LIVE,
    )
    if restored:
        pushed.custom_properties.MergeFrom(restored.custom_properties)
    _set(
        pushed,
        pushed=1,
        pushed_destination=paths[rollback.version],
        pushed_version=str(rollback.version),
        rolled_back_from=str(rollback.replaced),
    )
    kind = store.put_execution_type(pb.ExecutionType(name=_TYPE))
    execution = pb.Execution(
        type_id=kind, name=f"rollback-{uuid.uuid4()}", last_known_state=pb.Execution.COMPLETE
    )
    _set(execution, folder=folder, **rollback._asdict())
    events = [(pushed, _event(pb.Event.OUTPUT))]
    if restored:
        events.append((restored, _event(pb.Event.INPUT)))
    store.put_execution(execution, events, _contexts(store, like))


def read(metadata_db: str | os.PathLike[str]) -> list[Rollback]:
    """All rollbacks in an SQLite file, newest first."""
    store = file.open_store(metadata_db)
    found = []
    for execution in store.get_executions_by_type(_TYPE):
        values = run_metadata.values(execution.custom_properties)
        found.append(Rollback(**{name: values[name] for name in Rollback._fields}))
    return sorted(found, key=lambda rollback: -rollback.time)


def newest_pushed(store: ml_metadata.MetadataStore) -> list[pb.Artifact]:
    """The artifacts of pushed versions, newest first."""
    artifacts = store.get_artifacts_by_type(_PUSHED_MODEL)
    pushed = [each for each in artifacts if each.custom_properties["pushed"].int_value]
    return sorted(pushed, key=lambda artifact: -int(artifact.id))


def _contexts(store: ml_metadata.MetadataStore, artifact: pb.Artifact) -> Iterable[pb.Context]:
    """The pipeline and the Pusher's node: a channel of the Pusher looks for artifacts there."""
    for event in store.get_events_by_artifact_ids([artifact.id]):
        if event.type == pb.Event.OUTPUT:
            contexts = store.get_contexts_by_execution(event.execution_id)
            return [each for each in contexts if each.type in ("pipeline", "node")]
    return []


def _event(kind: pb.Event.Type) -> pb.Event:
    steps = [pb.Event.Path.Step(key=_OUTPUT), pb.Event.Path.Step(index=0)]
    return pb.Event(type=kind, path=pb.Event.Path(steps=steps))


def _set(target: pb.Artifact | pb.Execution, **properties: str | int | float) -> None:
    for name, value in properties.items():
        field = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(target.custom_properties[name], field, value)
