"""Rules for TFX's entrypoint, from runs of TFX 1.16 and 1.21 under an emulated launcher."""

from __future__ import annotations

from collections.abc import Iterator

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline

ENTRYPOINT = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_SOURCE = f"TFX: {ENTRYPOINT}"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks components that run TFX's entrypoint."""
    for component, container, location in pipeline.containers():
        if ENTRYPOINT not in [*container.get("command", []), *container.get("args", [])]:
            continue
        if component.inputs("artifacts"):
            yield Finding(
                "tfx-input-type",
                f"{location}.command",
                "The step crashes (AttributeError on None): the backend sends input artifacts with "
                "an empty instanceSchema, where TFX's entrypoint looks for a type.",
                "Compile with stagecraft's runner, whose entrypoint restores the types.",
                f"{_SOURCE}; backend/src/v2/metadata/client.go toRuntimeArtifact",
            )
        elif component.outputs("artifacts"):
            yield Finding(
                "tfx-uri",
                f"{location}.command",
                "The step crashes unless the pipeline root is gs://: TFX's entrypoint passes the "
                "URIs on, and Beam and TensorFlow have no s3:// or minio:// file system.",
                "Compile with stagecraft's runner, whose entrypoint maps URIs to the launcher's "
                "local copies.",
                f"{_SOURCE}; backend/src/v2/component/launcher_v2.go LocalPathForURI",
            )
