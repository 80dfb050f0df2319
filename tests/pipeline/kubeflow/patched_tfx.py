"""A plugin of pytest: TFX's own tests find our runner and our entrypoint in place of TFX's."""

from typing import Any

from tfx.orchestration import experimental
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as stock
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor as entrypoint

from stagecraft.pipeline import beam
from stagecraft.pipeline.kubeflow.entrypoint.run import restored_values
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings


class Runner(KubeflowRunner):
    """Ours, with the arguments of TFX's."""

    def __init__(
        self, config: Any, output_dir: str | None = None, output_filename: str = "pipeline.json"
    ) -> None:
        images = config.default_image
        if isinstance(images, str):
            images = {stock._DEFAULT_IMAGE_PATH_KEY: images}
        steps = {name: {"image": image} for name, image in images.items()}
        default = steps.pop(stock._DEFAULT_IMAGE_PATH_KEY, {})
        super().__init__(KubeflowSettings(steps=steps, **default), output_dir, output_filename)


def _run_executor(arguments: Any, beam_args: list[str]) -> None:
    with beam.in_process(), restored_values(arguments.executor_class_path):
        _stock_run_executor(arguments, beam_args)


_stock_run_executor = entrypoint._run_executor
entrypoint._run_executor = _run_executor
stock.KubeflowV2DagRunner = experimental.KubeflowV2DagRunner = Runner
