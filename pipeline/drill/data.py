"""Data for the drill: the outputs of ExampleGen and Transform, from a run of the pipeline."""

from __future__ import annotations

import pathlib
import types
from typing import IO, Any

from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.spec import RunSpec
from stagecraft.pipeline.local.supervisor import supervise
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.schemas.errors import UserError


class Data:
    """Examples, transform graph and schema of a run of the pipeline."""

    def __init__(self, settings: PipelineSettings, folder: pathlib.Path, log: IO[bytes]):
        """Runs the pipeline up to Transform.

        Raises:
            UserError: it fails.
        """
        outcome = supervise(RunSpec(settings, folder, to_node="Transform"), log, lambda event: None)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        if outcome.status != "ok":
            raise UserError(f"cannot prepare data: {outcome.cause} (log: {log.name})")
        self._root = layout.pipeline_root(folder)

    def fn_args(self, folder: pathlib.Path, flat: dict[str, Any]) -> types.SimpleNamespace:
        """The arguments that TFX would pass to ``run_fn``.

        Args:
            folder: for checkpoints, model and record.
            flat: the training's settings.
        """
        examples = self._output("Cifar10ExampleGen/examples")
        return types.SimpleNamespace(
            train_files=[str(examples / "Split-train" / "*")],
            eval_files=[str(examples / "Split-val" / "*")],
            transform_graph_path=str(self._output("Transform/transform_graph")),
            schema_path=str(self._output("ImportSchema/schema") / "schema.pbtxt"),
            model_run_dir=str(folder / "model_run"),
            serving_model_dir=str(folder / "model"),
            working_dir=str(folder / "checkpoints"),
            custom_config={"settings": flat},
        )

    def _output(self, key: str) -> pathlib.Path:
        (folder,) = (self._root / key).iterdir()
        return folder
