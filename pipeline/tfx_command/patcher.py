"""Has a pipeline's file compile for Kubeflow, whichever of the two runners is in it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import (
    KubeflowV2DagRunner,
    KubeflowV2DagRunnerConfig,
)
from tfx.tools.cli.handler.kubeflow_v2_dag_runner_patcher import KubeflowV2DagRunnerPatcher

from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.kubeflow.settings import KubeflowSettings
from stagecraft.schemas.errors import UserError


class KubeflowPatcher(KubeflowV2DagRunnerPatcher):
    """TFX's patcher; a plain ``KubeflowV2DagRunner``, which compiles for Vertex AI, is replaced.

    Our own ``KubeflowRunner`` is one, too, and calls the patched ``run`` for the part that TFX
    compiles.
    """

    def _decorate(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def run(runner: KubeflowV2DagRunner, pipeline: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(runner, KubeflowRunner):
                return f(runner, pipeline, *rest, **options)
            KubeflowV2DagRunner.run = f  # for the time of this call: TFX's own, below ours
            return _ours(runner).run(pipeline, *rest, **options)

        return super()._decorate(run)

    def _before_run(self, runner: Any, pipeline: Any, context: Any) -> None:
        super()._before_run(runner, pipeline, context)
        if not isinstance(runner, KubeflowRunner):
            name = pathlib.PurePath(runner._output_filename).with_suffix(".yaml").name
            runner._output_filename = name
            context[self.OUTPUT_FILE_PATH] = str(pathlib.Path(runner._output_dir, name))


def _ours(runner: KubeflowV2DagRunner) -> KubeflowRunner:
    image = runner.config.default_image
    stock = KubeflowV2DagRunnerConfig().default_image
    if not isinstance(image, str) or image == stock:
        raise UserError(
            f"default_image of KubeflowV2DagRunnerConfig: {image}: Kubeflow Pipelines needs an "
            "image with Stagecraft in it, whose entrypoint stands for TFX's; name the one that the "
            "project's Dockerfile builds, or one that is made from it."
        )
    return KubeflowRunner(
        KubeflowSettings(image=image), runner._output_dir, runner._output_filename
    )
