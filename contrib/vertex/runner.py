"""Compiles a pipeline for Vertex AI Pipelines: TFX's PipelineJob, completed."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import (
    KUBEFLOW_TFX_CMD,
    KubeflowV2DagRunner,
    KubeflowV2DagRunnerConfig,
)
from tfx.orchestration.pipeline import Pipeline

from stagecraft.common.errors import UserError
from stagecraft.contrib.vertex import driver, unsupported
from stagecraft.pipeline.kubeflow import compile, spec as specs
from stagecraft.pipeline.kubeflow.compiler import nodes, platform
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.pipeline import NO_HOOKS, Hooks
from stagecraft.pipeline.settings import PipelineSettings, ReportSettings
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings


class VertexRunner(KubeflowV2DagRunner):
    """Compiles a pipeline to a PipelineJob in JSON, with each step's settings and driver."""

    def __init__(
        self,
        settings: KubeflowSettings,
        output_dir: str | None = None,
        output_filename: str = "pipeline.json",
    ):
        self.settings = settings
        config = KubeflowV2DagRunnerConfig(
            default_image=settings.image, default_commands=list(KUBEFLOW_TFX_CMD)
        )
        super().__init__(config, output_dir, output_filename)

    def run(
        self,
        pipeline: Pipeline,
        parameter_values: Mapping[str, Any] | None = None,
        write_out: bool | None = True,
    ) -> Json | None:
        """Compiles the pipeline; None if a patched ``run`` of the base class compiles nothing."""
        name = pipeline.pipeline_info.pipeline_name
        self.settings.check_names([node.id for node in pipeline.components])
        for node in pipeline.components:
            # Vertex AI runs resolvers itself.
            if not isinstance(node, Resolver):
                unsupported.check_step(self.settings, node.id)
        try:
            job: Json | None = super().run(pipeline, parameter_values, write_out=False)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise UserError(f"{name}: TFX cannot compile it: {error}", record=name) from error
        if job is None:
            return None
        self._complete(job["pipelineSpec"], pipeline)
        if write_out:
            path = pathlib.Path(self._output_dir) / self._output_filename
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(job, indent=2, sort_keys=True) + "\n")
        return job

    def _complete(self, spec: Json, pipeline: Pipeline) -> None:
        drivers = {node.id: path for node in pipeline.components if (path := nodes.driver_of(node))}
        for step in specs.steps(spec):
            container = step.container
            if container is None:
                continue
            platform.apply(step, self.settings.step(step.name), self.settings.backend_version)
            _keep_numbers(container.get("resources", {}))
            if step.name in drivers and "lifecycle" not in container:
                container["lifecycle"] = _hook(drivers[step.name])


def _hook(driver_class: str) -> Json:
    args = [driver.DRIVER_CLASS, driver_class, driver.INVOCATION, "{{$}}"]
    return {"preCacheCheck": {"command": list(driver.COMMAND), "args": args}}


def _keep_numbers(resources: Json) -> None:
    """Removes fields of newer open-source backends."""
    for fields in (resources, resources.get("accelerator", {})):
        for name in [name for name in fields if name.startswith("resource")]:
            del fields[name]


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
    pipeline = compile.checked_pipeline(settings, create)
    VertexRunner(settings.kubeflow, output_dir).run(pipeline, compile.defaults(settings))
