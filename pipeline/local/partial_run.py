"""Partial runs (``--from``, ``--to``): the earlier run that they reuse; and results in the cache.

``--from Trainer`` runs the Trainer although the cache has its result. If that run is interrupted,
the cache still has the older result, and a run without ``--from`` would take it. Therefore this
module associates each execution with its cache key before the execution begins, as TFX does after
its end. A cached result counts only if no later execution of the same key failed, if its files are
whole, and if a pushed model is still served.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.orchestration.portable import cache_utils, partial_run_utils
from tfx.orchestration.portable.mlmd import context_lib, execution_lib
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import Artifact

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import manifest, run_metadata
from stagecraft.components.metadata.run_metadata import RunMetadata
from stagecraft.components.pusher import already
from stagecraft.pipeline.local import protocol


def choose_base(
    connection: metadata.ConnectionConfigType,
    pipeline: pipeline_pb2.Pipeline,
    partial: pipeline_pb2.PartialRun,
) -> list[str]:
    """Sets the newest run with all reused nodes as the base; returns the nodes that are skipped."""
    marked = pipeline_pb2.Pipeline()
    marked.CopyFrom(pipeline)
    partial_run_utils.mark_pipeline(
        marked, from_nodes=partial.from_nodes or None, to_nodes=partial.to_nodes or None
    )
    skips = {
        node.pipeline_node.node_info.id: node.pipeline_node.execution_options.skip
        for node in marked.nodes
        if node.pipeline_node.execution_options.HasField("skip")
    }
    required = pipeline_pb2.NodeExecutionOptions.Skip.REQUIRED
    needed = {node for node, skip in skips.items() if skip.reuse_artifacts_mode == required}
    settings = partial.snapshot_settings
    if needed and not settings.HasField("base_pipeline_run_strategy"):
        newest = _newest_with(connection, pipeline.pipeline_info.id, needed)
        settings.base_pipeline_run_strategy.base_run_id = newest
    return list(skips)


def _newest_with(
    connection: metadata.ConnectionConfigType, pipeline_name: str, needed: set[str]
) -> str:
    missing = needed
    with metadata.Metadata(connection) as handle:
        pipeline = handle.store.get_context_by_type_and_name("pipeline", pipeline_name)
        runs = handle.store.get_children_contexts_by_context(pipeline.id) if pipeline else []
        for run in sorted(runs, key=lambda run: int(run.id), reverse=True):
            if run.type != "pipeline_run":
                continue
            recorded = RunMetadata(handle.store, run)
            succeeded = filter(execution_lib.is_execution_successful, recorded.executions)
            absent = needed - set(map(recorded.node, succeeded))
            if not absent:
                return str(run.name)
            missing = min(missing, absent, key=len)
    raise UserError(
        f"--from: no earlier run with this output finished {', '.join(sorted(missing))}; run once "
        "without --from",
        setting="--from",
        value=sorted(missing),
    )


def note_cache_key(
    handle: metadata.Metadata, execution_id: int, contexts: Sequence[metadata_store_pb2.Context]
) -> None:
    """Associates an execution with its cache key, one of its contexts, before it begins."""
    kind = handle.store.get_context_type(context_lib.CONTEXT_TYPE_EXECUTION_CACHE)
    keys = [each for each in contexts if each.type_id == kind.id]
    handle.store.put_attributions_and_associations(
        [],
        [
            metadata_store_pb2.Association(context_id=key.id, execution_id=execution_id)
            for key in keys
        ],
    )


@contextlib.contextmanager
def cache_checked() -> Iterator[None]:
    """In the block, TFX reuses no result that is damaged, or that a later execution replaces.

    A ``note`` event names the damage.
    """
    stock = cache_utils.get_cached_outputs

    def get_cached_outputs(
        metadata_handle: metadata.Metadata, cache_context: metadata_store_pb2.Context
    ) -> Any:
        executions = metadata_handle.store.get_executions_by_context(cache_context.id)
        newest = max(executions, key=lambda execution: int(execution.id), default=None)
        if newest is not None and newest.last_known_state == metadata_store_pb2.Execution.FAILED:
            return None
        outputs = stock(metadata_handle=metadata_handle, cache_context=cache_context)
        if newest is None or outputs is None or not (why := _unusable(outputs)):
            return outputs
        node = run_metadata.node_of(metadata_handle.store, newest.id)
        text = f"{node} runs again, although its result is in the cache: {why}"
        protocol.emit("note", text, text=text)
        return None

    cache_utils.get_cached_outputs = get_cached_outputs
    try:
        yield
    finally:
        cache_utils.get_cached_outputs = stock


def _unusable(outputs: Mapping[str, Sequence[Artifact]]) -> str:
    """Why a cached result cannot be used; empty if it can."""
    for artifact in (each for artifacts in outputs.values() for each in artifacts):
        if damages := manifest.damages_of(artifact):
            return f"{damages[0].path(artifact.uri)} {damages[0]}"
        if why := already.lost(artifact):
            return why
    return ""
