"""The common part of all scenarios: data, settings, and an undisturbed training."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import types
from typing import IO, Any

from faults import faulty_worker
from faults.faulty_worker import Fault
from faults.training import Training
from stagecraft.common.errors import UserError
from stagecraft.pipeline.local import layout, nodes
from stagecraft.pipeline.local.protocol import RunSpec
from stagecraft.pipeline.local.supervisor import supervise
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.settings import TrainingSettings

STEPS = 24
CHECKPOINT_EVERY = 4
FAULT_AT = 10
"""A step between two checkpoints."""

TRAIN: dict[str, Any] = {
    "train_steps": STEPS,
    "train_checkpoint_every": CHECKPOINT_EVERY,
    "train_eval_every": 12,
    "train_batch_size": 32,
    "train_schedule": "constant",
    "train_learning_rate": 0.005,
    "train_ema_decay": 0.9,
    "train_lookahead": 0,
    "parallel_silence_timeout_seconds": 8,
    "parallel_start_timeout_seconds": 60,
}

SYNCHRONOUS: dict[str, Any] = {"parallel_strategy": "multi_worker_mirrored", "parallel_workers": 2}
PARAMETER_SERVER: dict[str, Any] = {"parallel_strategy": "parameter_server", "parallel_workers": 2}


class Drill:
    """Creates trainings on the same data, and knows the result without a fault."""

    def __init__(self, settings: PipelineSettings, folder: pathlib.Path, log: IO[bytes]):
        """Runs the pipeline up to Transform; trainings have ``settings`` and :data:`TRAIN`."""
        self.folder = folder
        self._log = log
        self._flat = TrainingSettings(task=settings.task, train=settings.train).flat()
        self._flat.pop("train_epochs", None)
        known = nodes.of(settings)
        self._example_gen = nodes.example_gen(known)
        self._schema = nodes.SCHEMA_GEN if nodes.SCHEMA_GEN in known else "ImportSchema"
        self._splits = settings.data.splits
        self._undisturbed: dict[str, bytes] | None = None
        spec = RunSpec(settings, folder / "data", to_node="Transform")
        outcome = supervise(spec, log, lambda event: None)
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        if outcome.status != "ok":
            raise UserError(f"cannot prepare data: {outcome.cause} (log: {log.name})")

    def training(
        self, name: str, topology: dict[str, Any] = SYNCHRONOUS, **changes: Any
    ) -> Training:
        """A training that has not begun. It resumes an earlier one with the same name."""
        examples, folder = self._output(f"{self._example_gen}/examples"), self.folder / name
        given = types.SimpleNamespace(  # as TFX passes them
            train_files=[str(examples / f"Split-{self._splits[0]}" / "*")],
            eval_files=[str(examples / f"Split-{self._splits[1]}" / "*")],
            transform_graph_path=str(self._output("Transform/transform_graph")),
            schema_path=str(self._output(f"{self._schema}/schema") / "schema.pbtxt"),
            model_run_dir=str(folder / "model_run"),
            serving_model_dir=str(folder / "model"),
            working_dir=str(folder / "checkpoints"),
            custom_config={"settings": self._flat | TRAIN | topology | changes},
        )
        return Training(given, self.struck(name), self._log)

    def undisturbed(self) -> dict[str, bytes]:
        """The last checkpoint of synchronous workers without a fault, bit for bit."""
        if self._undisturbed is None:
            training = self.training("undisturbed").run()
            if training.error:
                raise UserError(f"the training without a fault failed: {training.error}")
            self._undisturbed = training.weights()
        return self._undisturbed

    def program(self, name: str, kind: str, role: str, step: int = FAULT_AT) -> list[str]:
        """The program of a worker with a fault; see :class:`Fault`."""
        path = self.folder / f"{name}.fault.json"
        fault = Fault(kind=kind, role=role, step=step, struck=str(self.struck(name)))
        path.write_text(json.dumps(dataclasses.asdict(fault)))
        return [str(pathlib.Path(faulty_worker.__file__)), str(path), "-"]

    def struck(self, name: str) -> pathlib.Path:
        """The file that the fault writes when it strikes."""
        return self.folder / f"{name}.struck"

    def _output(self, key: str) -> pathlib.Path:
        (artifact,) = (layout.pipeline_root(self.folder / "data") / key).iterdir()
        return artifact
