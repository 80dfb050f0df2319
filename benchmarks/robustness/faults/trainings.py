"""Trainings of the drill: data, settings, faults, and the times of detection and recovery."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from faults import faulty_worker
from faults.faulty_worker import Fault, strike
from stagecraft.common.errors import UserError
from stagecraft.pipeline.local import layout, nodes
from stagecraft.pipeline.local.protocol import RunSpec
from stagecraft.pipeline.local.supervisor import supervise
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.processes import launcher
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training import record as training_record

RUN_FN = "stagecraft.trainer_module.run_fn.run_fn"

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


@dataclasses.dataclass(frozen=True)
class Signal:
    """A signal to one process, sent when the chief reports a step."""

    number: signal.Signals
    role: str
    step: int


class Training:
    """Runs a training until it ends or fails, and records the times."""

    def __init__(self, given: types.SimpleNamespace, struck: pathlib.Path, log: IO[bytes]):
        self.given = given
        self.restarts = 0
        self.error: str | None = None
        self.detected: float | None = None
        self.recovered: float | None = None
        self.causes: list[str] = []
        self.progressed = 0
        self._struck = struck
        self._log = log
        self._pids: dict[str, int] = {}
        self._step = 0
        self._before = 0  # the largest step at the detection

    def run(
        self,
        *,
        send: Signal | None = None,
        on_lost: Callable[[], None] = lambda: None,
        watch: Callable[[Event], None] = lambda event: None,
        program: Sequence[str] = launcher.WORKER,
    ) -> Training:
        """Trains in processes on this host; calls ``on_lost`` when one is lost."""

        def on_event(event: Event) -> None:
            watch(event)
            if event["event"] == "process":
                self._pids[event["name"]] = event["pid"]
            elif event["event"] == "lost":
                self.detected = self._since()
                self._before = self._step
                self.causes.append(event["message"])
                on_lost()
            elif event["event"] == "restart":
                self.restarts += 1
            elif event["event"] == "progress" and event["phase"] == "train":
                self.progressed += 1
                self._note(event["step"])
                if send and event["step"] >= send.step and not self._struck.exists():
                    strike(str(self._struck))
                    os.kill(self._pids[send.role], send.number)

        settings = TrainingSettings.from_flat(self.given.custom_config["settings"])
        try:
            launcher.run_local(
                TrainingTask(RUN_FN, self.given),
                settings.parallel,
                on_event=on_event,
                write_log=self._write_log,
                program=program,
            )
        except UserError as error:
            self.error = str(error)
            self.detected = self.detected or self._since()
        return self

    def send_all(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of the training."""
        for pid in self._pids.values():
            os.kill(pid, number)

    def start(self) -> subprocess.Popen[bytes]:
        """Trains in processes that another process starts, and returns that process."""
        code = (
            "import sys\n"
            "from stagecraft.trainer_module.processes import launcher\n"
            "from stagecraft.trainer_module.processes.training_task import TrainingTask\n"
            "from stagecraft.trainer_module.settings import TrainingSettings\n"
            "task = TrainingTask.parsed(sys.argv[1])\n"
            "launcher.run_local(task, TrainingSettings.from_flat(task.settings).parallel)\n"
        )
        words = [sys.executable, "-c", code, TrainingTask(RUN_FN, self.given).line()]
        return subprocess.Popen(words, stdout=self._log, stderr=self._log)

    def _write_log(self, line: str) -> None:
        self._log.write(line.encode() + b"\n")

    def _note(self, step: int) -> None:
        self._step = step
        if self.detected is not None and self.recovered is None and step > self._before:
            self.recovered = self._since()

    def _since(self) -> float | None:
        if not self._struck.exists():
            return None
        return time.time() - float(self._struck.read_text())

    @property
    def steps_lost(self) -> int | None:
        """Steps that the training repeated; None if it did not recover."""
        if self.detected is None or self.error:
            return None
        return max(0, self._before - self.record()["resumed_from"])

    def record(self) -> dict[str, Any]:
        """The chief's record of the training."""
        return training_record.read(self.given.model_run_dir)

    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the training."""
        return Checkpoints(self.given.working_dir, writes=False)

    def weights(self) -> dict[str, bytes]:
        """The content of the last checkpoint, bit for bit."""
        store = self.checkpoints()
        state = store.load(store.steps()[-1]).state
        return {name: np.ascontiguousarray(value).tobytes() for name, value in state.items()}


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
