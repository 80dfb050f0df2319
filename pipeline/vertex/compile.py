"""Our pipeline for Vertex AI: artifacts in Cloud Storage, and the resolver that TFX compiles."""

from __future__ import annotations

from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.pipeline import Pipeline

from stagecraft.pipeline.kubeflow import compile
from stagecraft.pipeline.settings import PipelineSettings, ReportSettings
from stagecraft.pipeline.vertex import unsupported
from stagecraft.pipeline.vertex.runner import VertexRunner
from stagecraft.trainer_module.models import registry


def create_pipeline(settings: PipelineSettings) -> Pipeline:
    """The pipeline as it is compiled for Kubeflow, but for the resolver and the report.

    Raises:
        UserError: a setting that cannot be on Vertex AI; a named module or file does not exist.
    """
    unsupported.check(settings)
    # TFX's entrypoint, which runs the steps there, does not find the types of the report.
    without = settings.model_copy(update={"report": ReportSettings(enabled=False)})
    return compile.create_pipeline(without, LatestBlessedModelStrategy)


def compile_pipeline(settings: PipelineSettings, output_dir: str | None = None) -> None:
    """Writes ``pipeline.json``; the ``tfx`` command may have it written elsewhere.

    Raises:
        UserError: something in it cannot work on Vertex AI, or its model cannot be trained so.
    """
    with registry.files_shared():  # what is built to be checked is not built again
        compile.check(settings)
        pipeline = create_pipeline(settings)
    runner = VertexRunner(settings.kubeflow, output_dir)
    runner.run(pipeline, compile.defaults(settings))
