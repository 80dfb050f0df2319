"""The artifacts of a run in ML Metadata."""

from __future__ import annotations

from typing import NamedTuple

from tfx.orchestration import metadata
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.types import Artifact

from stagecraft.components.metadata.run_metadata import RunMetadata


class Run(NamedTuple):
    """A run in ML Metadata."""

    run_id: str
    connection: metadata.ConnectionConfigType

    def outputs(self) -> dict[str, dict[str, list[Artifact]]]:
        """Node id -> output key -> artifacts, for nodes that succeeded, were cached or reused."""
        with metadata.Metadata(self.connection) as handle:
            recorded = RunMetadata.find(handle.store, self.run_id)
            return {
                recorded.node(execution): execution_lib.get_output_artifacts(handle, execution.id)
                for execution in (recorded.executions if recorded else ())
                if recorded and execution_lib.is_execution_successful(execution)
            }
