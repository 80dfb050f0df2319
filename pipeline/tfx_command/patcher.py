"""Makes a pipeline's file compile for Kubeflow with either of the two runners."""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner
from tfx.orchestration.kubeflow.v2.pipeline_builder import DEFAULT_IMAGE_PATH_KEY
from tfx.tools.cli.handler.kubeflow_v2_dag_runner_patcher import KubeflowV2DagRunnerPatcher

from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.kubeflow import document
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings, Step

_STOCK = re.compile(r"(^|/)(tfx-oss-public|tensorflow)/tfx([:@]|$)")


class KubeflowPatcher(KubeflowV2DagRunnerPatcher):
    """TFX's patcher; replaces a plain ``KubeflowV2DagRunner``, which compiles for Vertex AI."""

    def __init__(
        self,
        *,
        check: Callable[[str], None] | None = None,
        build: Callable[[str], str] | None = None,
        folder: str | None = None,
    ):
        """Sets hooks: ``check`` gets the pipeline's name before compiling; ``build`` an image's."""
        super().__init__(True, build, (lambda name: folder) if folder else None)
        self._check = check
        self._stand_in: KubeflowRunner | None = None

    def _decorate(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(runner: KubeflowV2DagRunner, *rest: Any, **options: Any) -> Any:
            if isinstance(runner, KubeflowRunner):
                return f(runner, *rest, **options)
            self._stand_in = _ours(runner)
            return self._stand_in.run(*rest, **options)

        first = super()._decorate(compiled)

        @functools.wraps(f)
        def run(runner: KubeflowV2DagRunner, *rest: Any, **options: Any) -> Any:
            if runner is self._stand_in:
                return f(runner, *rest, **options)
            if self.run_called:
                raise UserError(
                    "The file runs several pipelines, and the tfx command supports one per file. "
                    "Write a file for each."
                )
            return first(runner, *rest, **options)

        return run

    def _before_run(self, runner: Any, pipeline: Any, context: Any) -> None:
        is_plain = not isinstance(runner, KubeflowRunner)
        if is_plain:
            _images(runner)
        if self._check is not None:
            self._check(context[self.PIPELINE_NAME])
        super()._before_run(runner, pipeline, context)
        if is_plain:
            file = pathlib.Path(runner._output_dir, runner._output_filename).with_suffix(".yaml")
            if self._prepare_dir_fn is None:
                document.check_output(file)
            runner._output_filename = file.name
            context[self.OUTPUT_FILE_PATH] = str(file)


def _ours(runner: KubeflowV2DagRunner) -> KubeflowRunner:
    images = _images(runner)
    settings = KubeflowSettings(
        image=images.pop(DEFAULT_IMAGE_PATH_KEY),
        steps={component: Step(image=image) for component, image in images.items()},
    )
    ours = KubeflowRunner(settings, runner._output_dir, runner._output_filename)
    if runner._exit_handler is not None:
        ours.set_exit_handler(runner._exit_handler)  # KubeflowRunner.run refuses it
    return ours


def _images(runner: KubeflowV2DagRunner) -> dict[str, str]:
    """Images by component's ID, and a default."""
    default = runner.config.default_image
    images = dict(default) if isinstance(default, Mapping) else {DEFAULT_IMAGE_PATH_KEY: default}
    for image in images.values():
        if _STOCK.search(image):
            raise SettingError(
                "default_image of KubeflowV2DagRunnerConfig",
                image,
                "does not contain Stagecraft, whose entrypoint replaces TFX's on Kubeflow "
                "Pipelines",
                "the image that the project's Dockerfile builds, or an image based on it",
            )
    return images
