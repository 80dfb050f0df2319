"""The training loop: steps, evaluations, checkpoints, and the best weights at the end.

It is the same for every engine; the engine defines what a step is and where it runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoint_files import UnreadableCheckpointError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.engines.base import Engine, NonFiniteLossError
from stagecraft.trainer_module.processes.preemption import Preempted
from stagecraft.trainer_module.training import diverged, starting_point
from stagecraft.trainer_module.training.evaluation_history import EvaluationHistory
from stagecraft.trainer_module.training.monitoring.curve import Curve, Point
from stagecraft.trainer_module.training.monitoring.profile import Profile
from stagecraft.trainer_module.training.monitoring.progress import Reporter
from stagecraft.trainer_module.training.monitoring.timeline import Timeline
from stagecraft.trainer_module.training.outcome import Outcome
from stagecraft.trainer_module.training.pace import Pace

_log = logging.getLogger(__name__)


class Loop:
    """Trains an engine to ``total`` steps, from the newest checkpoint."""

    def __init__(
        self,
        engine: Engine,
        checkpoints: Checkpoints,
        reporter: Reporter,
        *,
        total: int,
        eval_every: int,
        checkpoint_every: int = 0,
        settings: Mapping[str, Any],
        chief: bool = True,
        timeline: Timeline | None = None,
        profile: Profile | None = None,
        evaluations: Evaluations | None = None,
        stop: Callable[[], bool] = lambda: False,
        on_phase: Callable[[str], None] = lambda _: None,
    ):
        """Starts nothing yet.

        Args:
            eval_every: steps between evaluations.
            checkpoint_every: steps between checkpoints, besides those at evaluations; 0: none.
            settings: ``TrainingSettings.flat()``, stored in each checkpoint.
            chief: whether this worker decides for all.
            evaluations: results of an evaluator process.
            stop: polled before each call of the engine; True on any worker stops all.
            on_phase: called with each phase that begins: ``train``, ``evaluate``, ``save``,
                ``done``.
        """
        self._engine = engine
        self._checkpoints = checkpoints
        self._reporter = reporter
        self._total = total
        self._periods = [period for period in (eval_every, checkpoint_every) if period]
        self._eval_every = eval_every
        self._settings = resume.resolved(settings, total)
        self._chief = chief
        self._timeline = timeline
        self._profile = profile
        self._history = EvaluationHistory(checkpoints, evaluations)
        self._stop = stop
        self._on_phase = on_phase
        self._pace = Pace()
        self._saved: int | None = None
        self.curve = Curve()
        """Of all attempts."""

    def run(self, train_data: Callable[[int], Any], val_data: Any | None) -> Outcome:
        """Trains, and leaves the engine with the weights that were best on the val split.

        A stopped training resumes exactly at its newest checkpoint. A finished training is not
        repeated, unless its settings changed.

        Args:
            train_data: maps the number of the first batch to the infinite dataset of global
                batches from there.
            val_data: finite dataset; None: no evaluation, and the last weights count.

        Raises:
            UserError: the loss is not finite, a checkpoint cannot be written, or a checkpoint has
                other settings.
            Preempted: ``stop`` returned True; a checkpoint of the last step is on the disk.
        """
        engine = self._engine
        self._resume()
        begin = engine.step
        batches = engine.feed(train_data(engine.batches)) if begin < self._total else iter(())
        while engine.step < self._total:
            step = engine.step
            boundary = min((step // period + 1) * period for period in self._periods)
            self._train_until(min(boundary, self._total), batches)
            due = engine.step % self._eval_every == 0 or engine.step == self._total
            if due and val_data is not None:
                self._evaluate(val_data)
            self._save()
        self._settle()
        if self._chief and engine.step in self._history.refresh():
            self._on_phase("evaluate")
            self._history.wait_for(engine.step)
        engine.sum_over_workers([0.0])
        self._history.refresh()
        self._on_phase("done")
        steps, taken = engine.step, engine.batches
        return Outcome(
            steps=steps,
            batches=taken,
            repeated=engine.repeated,
            best=self._restore_best(),
            evaluations=self._history.evaluations,
            images_per_second=self._pace.images_per_second,
            resumed_from=begin,
        )

    def _resume(self) -> None:
        engine, checkpoints = self._engine, self._checkpoints
        checkpoint = starting_point.find(checkpoints, engine, self._settings, self._chief)
        if checkpoint is None:
            if self._chief:
                self._history.reset()
            return
        try:
            engine.restore(checkpoint.state)
        except ValueError as error:
            raise UserError(
                f"{checkpoints.root}/{checkpoint.step}: {error}; use another checkpoint folder, or "
                "delete this one",
                file=f"{checkpoints.root}/{checkpoint.step}",
            ) from None
        self._saved, notes = checkpoint.step, checkpoint.progress
        self._pace = Pace(notes["seconds"], notes["examples"])
        # The logs of an earlier attempt are gone.
        self.curve = Curve(notes["curve"])
        for point in self.curve.points:
            self._reporter.log(point)
        for entry in notes["evaluations"]:
            self._add(Evaluation(**entry))
        _log.info("Resuming from step %d of %d, %s", checkpoint.step, self._total, checkpoints.root)
        self._reporter.resumed(checkpoint.step, self._total)

    def _train_until(self, boundary: int, batches: Iterator[Any]) -> None:
        engine, pace = self._engine, self._pace
        self._on_phase("train")
        while engine.step < boundary:
            steps = min(self._agreed_steps(), boundary - engine.step)
            watching: AbstractContextManager[None] = contextlib.nullcontext()
            if self._timeline and engine.step < self._timeline.step:  # step 0: no timeline
                before = self._timeline.step - 1 - engine.step
                steps = min(steps, before or 1)
                watching = watching if before else self._timeline.recorded()
            if self._profile:
                steps = self._profile.before(engine.step, steps)
            start = time.perf_counter()
            try:
                with watching:
                    metrics = engine.train(batches, steps)
            except NonFiniteLossError as error:
                raise diverged.in_training(error, self._precision, self._last_good()) from None
            seconds = time.perf_counter() - start
            if self._profile:
                self._profile.after(engine.step)
            pace.add(steps, metrics.examples, seconds)
            speed = metrics.examples / seconds
            point = Point(engine.step, metrics.loss, metrics.accuracy, engine.learning_rate, speed)
            self.curve.add(point)
            eta_seconds = pace.eta_seconds(self._total - engine.step)
            self._reporter.train(point, self._total, eta_seconds)

    def _agreed_steps(self) -> int:
        """Steps of the next call: the chief's number, since each worker measures another pace.

        Raises:
            Preempted: a worker has to stop.
        """
        steps = self._pace.steps_per_call if self._chief else 0
        stops, steps_of_all = self._engine.sum_over_workers([float(self._stop()), float(steps)])
        if stops:
            self._save()
            self._settle()
            raise Preempted(self._engine.step)
        return int(steps_of_all)

    def _evaluate(self, val_data: Any) -> None:
        self._on_phase("evaluate")
        metrics, step = self._engine.evaluate(val_data), self._engine.step
        if not math.isfinite(metrics.loss):
            raise diverged.in_evaluation(step, metrics.loss, self._precision, self._last_good())
        self._add(Evaluation(step, metrics.loss, metrics.accuracy))

    def _add(self, evaluation: Evaluation) -> None:
        self._history.add(evaluation)
        self._reporter.evaluation(evaluation.step, evaluation.loss, evaluation.accuracy)

    def _save(self) -> None:
        step = self._engine.step
        if step == self._saved:
            return
        self._on_phase("save")
        self._checkpoints.flush()  # before the snapshot: memory holds only one
        needed = self._history.refresh()
        ranked = self._history.ranked()
        self._checkpoints.save(
            step,
            self._engine.snapshot(),
            {
                "curve": list(self.curve.points),
                "evaluations": [dataclasses.asdict(entry) for entry in self._history.evaluations],
                "seconds": self._pace.seconds,
                "examples": self._pace.examples,
                "settings": self._settings,
                "finished": step == self._total,
            },
            best_step=ranked[0].step if ranked else step,
            needed=needed,
        )
        self._saved = step

    def _settle(self) -> None:
        """Waits until the chief's checkpoint is on the disk, where the other workers read it."""
        self._checkpoints.flush()
        self._engine.sum_over_workers([0.0])

    def _restore_best(self) -> Evaluation | None:
        kept = self._checkpoints.steps()
        for best in self._history.ranked():
            if best.step == self._engine.step:
                return best
            if best.step in kept:
                try:
                    self._engine.restore(self._checkpoints.load(best.step).state)
                    return best
                except UnreadableCheckpointError as error:
                    _log.warning("Unreadable checkpoint; using the next best: %s", error)
        return None

    @property
    def _precision(self) -> str:
        return str(self._settings.get("parallel_precision", "float32"))

    def _last_good(self) -> str:
        """Names the last checkpoint, in the message of a loss that is not finite."""
        try:
            self._checkpoints.flush()
        except UserError as error:  # the diverged loss is the more important error
            _log.warning("The last checkpoint was not written: %s", error)
        steps = self._checkpoints.steps()
        kept = f"; the last good checkpoint is step {steps[-1]}" if steps else ""
        return f"{kept} ({self._checkpoints.root})"
