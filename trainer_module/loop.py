"""The training loop: steps, evaluations, checkpoints, and the best weights at the end.

The same for every engine: what a step is, and where it runs, is theirs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpoints import Checkpoints, UnreadableCheckpointError
from stagecraft.trainer_module.engines.base import Engine, NonFiniteLossError
from stagecraft.trainer_module.pace import Pace
from stagecraft.trainer_module.reporting import Reporter
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.timeline import Timeline

DEFAULT_EPOCHS = 10.0
"""Where the settings give neither steps nor epochs."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The val split after a step."""

    step: int
    loss: float
    accuracy: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a training."""

    steps: int
    best: Evaluation | None
    """Of the weights that the engine is left with; None: nothing was evaluated."""

    evaluations: list[Evaluation]
    images_per_second: float
    """Of training steps: neither tracing, evaluating nor saving."""

    resumed_from: int
    """Steps that an earlier attempt had done; 0: none."""


def total_steps(train: TrainSettings, num_examples: int) -> int:
    """Optimizer steps of the whole training."""
    if train.steps is not None:
        return train.steps
    epochs = DEFAULT_EPOCHS if train.epochs is None else train.epochs
    return max(1, round(epochs * num_examples / train.batch_size))


def steps_between_evaluations(train: TrainSettings, num_examples: int) -> int:
    """``eval_every``, or the steps of one epoch."""
    return train.eval_every or max(1, round(num_examples / train.batch_size))


class Loop:
    """Trains an engine to ``total`` steps, from the newest checkpoint on."""

    def __init__(
        self,
        engine: Engine,
        checkpoints: Checkpoints,
        reporter: Reporter,
        *,
        total: int,
        eval_every: int,
        timeline: Timeline | None = None,
    ):
        """Prepares.

        Args:
            engine: what is trained.
            checkpoints: where it goes on from, and what it is saved to.
            reporter: is told of steps and evaluations.
            total: steps.
            eval_every: steps between evaluations.
            timeline: watches its step, if that is still to come.
        """
        self._engine = engine
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._total = total
        self._eval_every = eval_every
        self._timeline = timeline
        self._pace = Pace()
        self._evaluations: list[Evaluation] = []

    def run(self, train_data: Callable[[int], Any], val_data: Any | None) -> Outcome:
        """Trains, and leaves the engine with the weights that were best on the val split.

        A training that was stopped goes on exactly where its newest checkpoint is; one that
        was finished is not trained again.

        Args:
            train_data: number of the first -> the infinite dataset of global batches from there on.
            val_data: finite dataset; None: nothing is evaluated, and the last weights count.

        Raises:
            UserError: the loss is not finite, or a checkpoint cannot be written.
        """
        engine = self._engine
        self._resume()
        begin = engine.step
        batches = engine.feed(train_data(engine.batches)) if begin < self._total else iter(())
        while engine.step < self._total:
            boundary = (engine.step // self._eval_every + 1) * self._eval_every
            self._train_until(min(boundary, self._total), batches)
            if val_data is not None:
                self._evaluate(val_data)
            self._save()
        steps = engine.step
        return Outcome(
            steps=steps,
            best=self._restore_best(),
            evaluations=self._evaluations,
            images_per_second=self._pace.images_per_second,
            resumed_from=begin,
        )

    def _resume(self) -> None:
        found = self._checkpoints.newest()
        if found is None:
            return
        try:
            self._engine.restore(found.state)
        except ValueError as error:
            raise UserError(
                f"{self._checkpoints.root}/{found.step}: {error}; give another checkpoint folder, "
                "or delete this one"
            ) from None
        notes = found.progress
        self._pace = Pace(notes["seconds"], notes["examples"])
        for entry in notes["evaluations"]:
            self._note(Evaluation(**entry))  # an earlier attempt's logs are gone with it
        _log.info(
            "Going on from step %d of %d, %s", found.step, self._total, self._checkpoints.root
        )

    def _train_until(self, boundary: int, batches: Iterator[Any]) -> None:
        engine, pace = self._engine, self._pace
        while engine.step < boundary:
            steps = min(pace.steps_per_call, boundary - engine.step)
            watching: AbstractContextManager[None] = contextlib.nullcontext()
            if self._timeline and engine.step < self._timeline.step:  # 0 is no step
                before = self._timeline.step - 1 - engine.step
                steps = min(steps, before or 1)
                watching = watching if before else self._timeline.watching()
            start = time.perf_counter()
            try:
                with watching:
                    metrics = engine.train(batches, steps)
            except NonFiniteLossError as error:
                raise self._diverged(f"the loss is {error.loss} at step {error.step}") from None
            seconds = time.perf_counter() - start
            pace.add(steps, metrics.examples, seconds)
            self._reporter.train(
                engine.step,
                self._total,
                metrics,
                learning_rate=engine.learning_rate,
                images_per_second=metrics.examples / seconds,
                eta_seconds=pace.eta_seconds(self._total - engine.step),
            )

    def _evaluate(self, val_data: Any) -> None:
        metrics, step = self._engine.evaluate(val_data), self._engine.step
        if not math.isfinite(metrics.loss):
            raise self._diverged(f"the loss on the val split is {metrics.loss} after step {step}")
        self._note(Evaluation(step, metrics.loss, metrics.accuracy))

    def _note(self, evaluation: Evaluation) -> None:
        self._evaluations.append(evaluation)
        self._reporter.evaluation(evaluation.step, evaluation.loss, evaluation.accuracy)

    def _save(self) -> None:
        step = self._engine.step
        progress = {
            "evaluations": [dataclasses.asdict(entry) for entry in self._evaluations],
            "seconds": self._pace.seconds,
            "examples": self._pace.examples,
        }
        ranked = self._ranked()
        self._checkpoints.save(
            step, self._engine.state(), progress, best_step=ranked[0].step if ranked else step
        )
        self._engine.sum_over_workers([0.0])  # the others read what the chief writes

    def _ranked(self) -> list[Evaluation]:
        """The highest accuracy first; among equals the lowest loss, then the earliest."""
        return sorted(self._evaluations, key=lambda entry: (-entry.accuracy, entry.loss))

    def _restore_best(self) -> Evaluation | None:
        kept = self._checkpoints.steps()
        for best in self._ranked():
            if best.step == self._engine.step:
                return best
            if best.step in kept:
                try:
                    self._engine.restore(self._checkpoints.load(best.step).state)
                    return best
                except UnreadableCheckpointError as error:
                    _log.warning("Checkpoint cannot be read, taking the next best: %s", error)
        return None

    def _diverged(self, what: str) -> UserError:
        steps = self._checkpoints.steps()
        kept = f"; the last good checkpoint is step {steps[-1]}" if steps else ""
        return UserError(
            f"Training stopped: {what}{kept} ({self._checkpoints.root}). Lower "
            "train.learning_rate, or raise train.warmup_steps."
        )
