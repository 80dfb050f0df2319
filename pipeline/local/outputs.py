"""The output artifacts of a run, from ML Metadata."""

from __future__ import annotations

from tfx.orchestration import metadata
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.types import Artifact

from stagecraft.pipeline.local.runners import Run


def of_run(run: Run) -> dict[str, dict[str, list[Artifact]]]:
    """Node id to its output artifacts, for every node that succeeded, was cached or reused."""
    found: dict[str, dict[str, list[Artifact]]] = {}
    with metadata.Metadata(run.connection) as handle:
        store = handle.store
        context = store.get_context_by_type_and_name("pipeline_run", run.run_id)
        if context is None:
            return {}
        for execution in store.get_executions_by_context(context.id):
            if not execution_lib.is_execution_successful(execution):
                continue
            for owner in store.get_contexts_by_execution(execution.id):
                if owner.type == "node":
                    _, _, node = owner.name.partition(".")
                    found[node] = execution_lib.get_output_artifacts(handle, execution.id)
    return found
