"""Runs a training of ``fit`` in this process, alone or as one of several workers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.fitting import epochs
from stagecraft.fitting.history import History
from stagecraft.fitting.job import Job, checkpoints_in
from stagecraft.fitting.plan import Plan
from stagecraft.fitting.sources import TOO_LARGE, Source
from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.engines.factory import join, make_engine
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.processes import events
from stagecraft.trainer_module.training import gradient_registry
from stagecraft.trainer_module.training.loop import Loop

Weights = Mapping[str, np.ndarray]


@dataclasses.dataclass
class Training:
    """The arguments of ``fit``, checked."""

    job: Job
    data: Source
    validation: Source | None
    epochs: int
    validation_freq: int
    callbacks: Sequence[Any]
    verbose: int
    checkpoint_dir: str | None
    stop: Callable[[], bool] = lambda: False

    def run(self, model: Callable[[Weights], keras.Model]) -> tuple[History, Weights]:
        """Trains in this process; returns history and weights, by the paths of the builder's model.

        Args:
            model: gives the caller's model these weights, and returns it.

        Raises:
            UserError: an error in model, data, devices or loss.
        """
        settings = self.job.settings
        train, parallel, data = settings.train, settings.parallel, self.data
        devices, chief, connected = join(parallel)
        if data.short:
            self._check_short()
        history = History(params={"epochs": self.epochs, "steps": data.steps,
                                  "verbose": self.verbose})  # fmt: skip
        history.topology = devices
        folder = os.path.abspath(self.checkpoint_dir) if self.checkpoint_dir else None
        writes = chief and folder is not None
        unused = os.path.join(tempfile.gettempdir(), f"stagecraft-{uuid.uuid4().hex}")
        root = checkpoints_in(folder) if folder else unused
        with (
            gradient_registry.cleaned_up(),
            disk_errors(folder or root),
            _sized_batches(),
            Checkpoints(root, writes=writes, keep=train.keep) as checkpoints,
        ):
            engine = make_engine(
                connected,
                devices,
                settings,
                self.epochs * data.steps,
                functools.partial(self.job.build_model, adapt_to=self._first_inputs),
            )
            history.plan = None if engine.plan is None else Plan(engine.plan)
            following = epochs.Epochs(
                history,
                epochs=self.epochs,
                steps=data.steps,
                short=data.short,
                metrics=self.job.task.metrics(),
                batch_size=data.batch_size,
                validation_freq=self.validation_freq,
                callbacks=self.callbacks,
                update=lambda: model(engine.weights()),
                verbose=self.verbose,
                folder=folder,
                chief=chief,
            )
            loop = Loop(
                engine,
                checkpoints,
                _Reports(),  # type: ignore[arg-type]  # the parts of a Reporter that Loop calls
                total=self.epochs * data.steps,
                eval_every=data.steps * self.validation_freq,
                checkpoint_every=data.steps if folder else 0,
                settings=settings.flat(),
                rank=_newest_first,
                chief=chief,
                callbacks=following,
                keeps_finished=True,
                stop=self.stop,
            )

            def batches(first: int) -> Any:
                following.start(first)
                return data.train(first, devices.rows)

            try:
                outcome = loop.run(batches, self._validation(devices))
            except KeyboardInterrupt:
                model(engine.weights())
                raise
            if outcome.resumed_from >= self.epochs * data.steps:
                following.start(engine.step)
            history.examples_per_second = outcome.images_per_second
            weights = _weights(engine)
        return history, weights

    def _first_inputs(self) -> Any:
        """The inputs that layers adapt to, as many as in a pipeline."""
        specs = tf.nest.flatten(self.data.inputs)
        return self.data.first_inputs(adapting.count(*(spec.shape for spec in specs)))

    def _validation(self, devices: topology.Topology) -> Any:
        if self.validation is None:
            return None
        size = devices.fitting_batch(self.validation.batch_size)
        self.job.check_filled(self.validation, size, "validation_data")
        return self.validation.evaluate(size, devices.rows)

    def _check_short(self) -> None:
        """Refuses a short batch for a model that mixes the rows of a batch."""
        data = self.data
        part = self.job.row_dependence(data, training=True)
        rest = data.rest() if part else 0
        if not rest:
            return
        count = getattr(data, "count", 0)
        fitting = [n for n in range(1, data.batch_size + 1) if count and count % n == 0]
        raise SettingError(
            "batch_size",
            data.batch_size,
            f"leaves a batch of {rest} examples, and {part} depends on all rows of a batch",
            f"batch_size={fitting[-1]}" if fitting else "dataset.batch(…, drop_remainder=True)",
        )


def _weights(engine: Engine) -> Weights:
    weights = engine.weights()
    engine.sum_over_workers([0.0])  # barrier: an early exit looks like a crash to peers
    return weights


def _newest_first(evaluations: list[Evaluation]) -> list[Evaluation]:
    """As Keras, ``fit`` keeps the last weights, not the best ones."""
    return sorted(evaluations, key=lambda each: -each.step)


class _Reports:
    """In place of TensorBoard's files: events for a supervisor."""

    def train(self, point: Any, total: int, eta_seconds: float) -> None:
        events.emit("progress", phase="train", step=point.step, total=total)

    def resumed(self, step: int, total: int) -> None:
        events.emit("progress", phase="resume", step=step, total=total)

    def log(self, point: Any) -> None:
        """Nothing: the points before a resume are in the history."""

    def evaluation(self, evaluation: Evaluation) -> None:
        """Nothing: the history has it."""


@contextlib.contextmanager
def _sized_batches() -> Any:
    """Raises a UserError for a batch that is larger than the first one."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if TOO_LARGE not in (error.message or ""):
            raise
        raise SettingError(
            "x",
            "the dataset",
            "has a batch that is larger than the first one",
            "dataset.unbatch().batch(32), which makes equal batches",
        ) from None
