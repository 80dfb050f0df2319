"""The output artifacts of a run, from ML Metadata."""

from __future__ import annotations

from tfx.orchestration import metadata
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.types import Artifact

from stagecraft.components.metadata.run_metadata import RunMetadata
from stagecraft.pipeline.local.runners import Run


def of_run(run: Run) -> dict[str, dict[str, list[Artifact]]]:
    """Node id to its output artifacts, for every node that succeeded, was cached or reused."""
    with metadata.Metadata(run.connection) as handle:
        recorded = RunMetadata.find(handle.store, run.run_id)
        if recorded is None:
            return {}
        return {
            recorded.node(execution): execution_lib.get_output_artifacts(handle, execution.id)
            for execution in recorded.executions
            if execution_lib.is_execution_successful(execution)
        }
