"""Compiles the project's pipeline for Vertex AI."""

from __future__ import annotations

from collections.abc import Callable

from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.pipeline import Pipeline

from stagecraft.pipeline.kubeflow import compile
from stagecraft.pipeline.pipeline import NO_HOOKS, Hooks
from stagecraft.pipeline.settings import PipelineSettings, ReportSettings
from stagecraft.pipeline.vertex import unsupported
from stagecraft.pipeline.vertex.runner import VertexRunner
from stagecraft.trainer_module.models import registry


def create_pipeline(settings: PipelineSettings, hooks: Hooks = NO_HOOKS) -> Pipeline:
    """The pipeline as for Kubeflow, with TFX's resolver and without the report."""
    unsupported.check(settings)
    # TFX's entrypoint, which runs the steps, does not find the types of the report.
    without = settings.model_copy(update={"report": ReportSettings(enabled=False)})
    return compile.create_pipeline(without, LatestBlessedModelStrategy, hooks)


def compile_pipeline(
    settings: PipelineSettings,
    output_dir: str | None = None,
    create: Callable[[PipelineSettings], Pipeline] = create_pipeline,
) -> None:
    """Writes ``pipeline.json``; the ``tfx`` command may set another path.

    Args:
        create: :func:`create_pipeline`, or a project's function.
    """
    with registry.files_shared():  # checks and pipeline build the model's files once
        compile.check(settings)
        pipeline = create(settings)
    runner = VertexRunner(settings.kubeflow, output_dir)
    runner.run(pipeline, compile.defaults(settings))
