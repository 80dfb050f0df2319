"""Which earlier run a partial run takes its inputs from."""

from __future__ import annotations

from collections.abc import Sequence

import ml_metadata
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.orchestration.portable import partial_run_utils
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2

from stagecraft.schemas.errors import UserError


def choose(
    connection: metadata.ConnectionConfigType,
    pipeline: pipeline_pb2.Pipeline,
    partial: pipeline_pb2.PartialRun,
) -> list[str]:
    """Sets the base of a partial run: the newest run in which all that is reused succeeded.

    TFX's own choice is the newest run, which fails if that one was stopped early.

    Returns:
        Names of the nodes that are not run.

    Raises:
        UserError: there is no such run; names the nodes that are missing.
    """
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
        for run in _runs(handle.store, pipeline_name):
            absent = needed - _succeeded(handle.store, run.id, pipeline_name)
            if not absent:
                return str(run.name)
            missing = min(missing, absent, key=len)
    raise UserError(
        f"there is nothing to start from: no earlier run with this output in which "
        f"{', '.join(sorted(missing))} succeeded; run once without --from"
    )


def _runs(
    store: ml_metadata.MetadataStore, pipeline_name: str
) -> Sequence[metadata_store_pb2.Context]:
    """Contexts of the pipeline's runs, newest first."""
    pipeline = store.get_context_by_type_and_name("pipeline", pipeline_name)
    if pipeline is None:
        return []
    runs = store.get_children_contexts_by_context(pipeline.id)
    return sorted(
        (run for run in runs if run.type == "pipeline_run"), key=lambda run: run.id, reverse=True
    )


def _succeeded(store: ml_metadata.MetadataStore, run_id: int, pipeline_name: str) -> set[str]:
    prefix = f"{pipeline_name}."
    return {
        context.name.removeprefix(prefix)
        for execution in store.get_executions_by_context(run_id)
        if execution_lib.is_execution_successful(execution)
        for context in store.get_contexts_by_execution(execution.id)
        if context.name.startswith(prefix)
    }
