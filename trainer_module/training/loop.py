"""The training loop: steps, evaluations, checkpoints, and the best weights at the end.

It is the same for every engine; the engine defines what a step is and where it runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import checkpoint_files, resume
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.engines.step_metrics import NonFiniteLossError
from stagecraft.trainer_module.processes.preemption import Preempted
from stagecraft.trainer_module.training.callbacks import Callbacks
from stagecraft.trainer_module.training.early_stopping import Watch
from stagecraft.trainer_module.training.evaluator import EvaluationHistory, evaluate, in_training
from stagecraft.trainer_module.training.monitoring.curve import Curve, Point
from stagecraft.trainer_module.training.monitoring.profile import Profile
from stagecraft.trainer_module.training.monitoring.progress import Reporter
from stagecraft.trainer_module.training.monitoring.timeline import Timeline
from stagecraft.trainer_module.training.record import Outcome

_log = logging.getLogger(__name__)

REPORT_SECONDS = 1.0
"""Time between two reports; Python and Ctrl-C wait for the engine as long."""

_MAX_GROWTH = 8
"""Limit on the growth of the steps per call: one fast call may be an exception."""


class Pace:
    """Measures the engine's calls; the first one traces the graph, and counts only if alone."""

    def __init__(self, seconds: float = 0.0, examples: int = 0):
        """Continues the measurement of an earlier attempt."""
        self.seconds = seconds
        self.examples = examples
        self.steps_per_call = 1
        self._first: tuple[float, int] | None = None
        self._warm_at = 0.0
        self._warm_steps = 0

    @property
    def images_per_second(self) -> float:
        """Throughput of training steps, without tracing, evaluating and saving."""
        if self.seconds:
            return self.examples / self.seconds
        seconds, examples = self._first or (1.0, 0)
        return examples / seconds

    def add(self, steps: int, examples: int, seconds: float) -> None:
        """Adds one call of the engine."""
        if self._first is None:
            self._first = (seconds, examples)
            self._warm_at = time.perf_counter()
            return
        self.seconds += seconds
        self.examples += examples
        self._warm_steps += steps
        fitting = round(REPORT_SECONDS * steps / seconds)
        self.steps_per_call = max(1, min(fitting, _MAX_GROWTH * steps))

    def eta_seconds(self, steps: int) -> float:
        """Seconds for ``steps`` more, including evaluations and checkpoints between them."""
        if self._first is None:
            return 0.0
        if not self._warm_steps:
            return self._first[0] * steps
        return (time.perf_counter() - self._warm_at) / self._warm_steps * steps


@dataclasses.dataclass(eq=False)
class Loop:
    """Trains an engine to ``total`` steps, from the newest checkpoint."""

    engine: Engine
    checkpoints: Checkpoints
    reporter: Reporter
    _: dataclasses.KW_ONLY
    total: int
    eval_every: int
    checkpoint_every: int = 0
    """Steps between checkpoints, besides those at evaluations; 0: none."""
    settings: Mapping[str, Any]
    """``TrainingSettings.flat()``, stored in each checkpoint."""
    rank: Callable[[list[Evaluation]], list[Evaluation]]
    """Sorts evaluations, best first."""
    chief: bool = True
    """Whether this worker decides for all."""
    timeline: Timeline | None = None
    profile: Profile | None = None
    evaluations: Evaluations | None = None
    watch: Watch | None = None
    """Decides by evaluations; None: nothing does."""
    callbacks: Callbacks = dataclasses.field(default_factory=Callbacks)
    """The user's."""
    stop: Callable[[], bool] = lambda: False
    """Polled before each call of the engine; True on any worker stops all."""
    on_phase: Callable[[str], None] = lambda _: None
    """Called with each phase that begins: ``train``, ``evaluate``, ``save``, ``done``."""

    def __post_init__(self) -> None:
        self._periods = [each for each in (self.eval_every, self.checkpoint_every) if each]
        self._stopped_early = False
        self._settings = resume.resolved(self.settings, self.total)
        self._history = EvaluationHistory(self.checkpoints, self.evaluations, self.rank)
        self._pace = Pace()
        self._saved: int | None = None
        self.curve = Curve()
        """Curve of all attempts."""

    def run(self, train_data: Callable[[int], Any], val_data: Any | None) -> Outcome:
        """Trains, and leaves the engine with the weights that were best on the val split.

        A stopped training resumes exactly at its newest checkpoint. A finished training is not
        repeated, unless its settings changed.

        Args:
            train_data: maps the number of the first batch to the infinite dataset of global
                batches from there.
            val_data: finite dataset; None: no evaluation, and the last weights count.

        Raises:
            UserError: the loss is not finite, a checkpoint cannot be written or has other
                settings, or only the chief can read it.
            Preempted: ``stop`` returned True; a checkpoint of the last step is on the disk.
        """
        engine = self.engine
        self._resume()
        begin = engine.step
        if self.watch and self.watch.setting and val_data is None:
            raise UserError(
                f"{self.watch.setting}: needs evaluations, but the val split has no examples",
                setting=self.watch.setting,
            )
        self._follow_evaluations()
        batches = iter(()) if self._is_done else engine.feed(train_data(engine.batches))
        if not self._is_done:
            self.callbacks.begin()
        while not self._is_done:
            step = engine.step
            boundary = min((step // period + 1) * period for period in (*self._periods, self.total))
            self._train_until(min(boundary, self.callbacks.boundary(step) or boundary), batches)
            due = engine.step % self.eval_every == 0 or engine.step == self.total
            if due and val_data is not None:
                self._evaluate(val_data)
            self.callbacks.epoch_end(engine.step, self._newest_evaluation())
            self._follow_callbacks()
            if self._is_done or any(engine.step % period == 0 for period in self._periods):
                self._save()
        self._settle()
        self.callbacks.end()
        if self.chief and engine.step in self._history.refresh():
            self.on_phase("evaluate")
            self._history.wait_for(engine.step)
        engine.sum_over_workers([0.0])
        self._history.refresh()
        self.on_phase("done")
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

    @property
    def _is_done(self) -> bool:
        return self._stopped_early or self.engine.step >= self.total

    def _newest_evaluation(self) -> Evaluation | None:
        """The evaluation after the engine's step."""
        newest = self._history.evaluations[-1:]
        return newest[0] if newest and newest[0].step == self.engine.step else None

    def _follow_evaluations(self) -> None:
        """Stops early, and sets the factor on the rate, on all workers as the chief decides."""
        if self.watch is None or not self.watch.setting:
            return
        evaluations = self._history.evaluations
        decided = [float(self.watch.stops(evaluations)), self.watch.factor(evaluations)]
        stops, factor = self.engine.sum_over_workers(decided if self.chief else [0.0, 0.0])
        self.engine.scale_learning_rate(factor)
        if stops and not self._stopped_early:
            self._stopped_early = True
            _log.info("Stopped early after step %d: no improvement", self.engine.step)

    def _follow_callbacks(self) -> None:
        """Stops at the end of an epoch, on all workers, if the chief's callbacks ask for it."""
        epoch = self.callbacks.epoch_steps
        if not epoch or self.engine.step % epoch:
            return
        [stops] = self.engine.sum_over_workers([float(self.chief and self.callbacks.stops)])
        self._stopped_early = self._stopped_early or bool(stops)

    def _resume(self) -> None:
        engine, checkpoints = self.engine, self.checkpoints
        checkpoint = self._find_start()
        if checkpoint is None:
            if self.chief and self.evaluations:
                self.evaluations.clear()  # of an earlier training
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
            self.reporter.log(point)
        for entry in notes["evaluations"]:
            self._add(Evaluation(**entry))
        _log.info("Resuming from step %d of %d, %s", checkpoint.step, self.total, checkpoints.root)
        self.reporter.resumed(checkpoint.step, self.total)

    def _find_start(self) -> checkpoint_files.Checkpoint | None:
        """The checkpoint to resume from; sets aside those of a finished, different training."""
        checkpoint = self._newest()
        if checkpoint is None:
            return None
        changed = resume.changes(checkpoint.progress["settings"], self._settings, checkpoint.step)
        if not changed:
            return checkpoint
        root = self.checkpoints.root
        if not checkpoint.progress["finished"]:
            raise resume.OtherTrainingError(root, checkpoint.step, changed)
        self.engine.sum_over_workers([0.0])  # barrier: all workers have read the checkpoints
        aside = self.checkpoints.set_aside()
        _log.warning(
            "%s: moved the checkpoints of a finished training run with other settings (%s) to %s; "
            "this training run begins at step 0",
            root,
            resume.describe(changed),
            aside,
        )
        return None

    def _newest(self) -> checkpoint_files.Checkpoint | None:
        """The chief's newest checkpoint."""
        newest = self.checkpoints.newest()
        step = newest.step if newest else -1
        agreed = int(self.engine.sum_over_workers([step if self.chief else 0])[0])
        if agreed == step:
            return newest
        if agreed < 0:
            return None
        try:
            return self.checkpoints.load(agreed)
        except checkpoint_files.UnreadableCheckpointError as error:
            raise UserError(
                f"{error}: the chief resumes from this checkpoint, and this worker cannot read it; "
                "use a folder that all workers share",
                file=str(self.checkpoints.root),
            ) from error

    def _train_until(self, boundary: int, batches: Iterator[Any]) -> None:
        engine, pace = self.engine, self._pace
        self.on_phase("train")
        while engine.step < boundary:
            steps = min(self._agreed_steps(), boundary - engine.step)
            watching: AbstractContextManager[None] = contextlib.nullcontext()
            if self.timeline and engine.step < self.timeline.step:  # step 0: no timeline
                before = self.timeline.step - 1 - engine.step
                steps = min(steps, before or 1)
                watching = watching if before else self.timeline.recorded()
            if self.profile:
                steps = self.profile.before(engine.step, steps)
            start = time.perf_counter()
            try:
                with watching:
                    metrics = engine.train(batches, steps)
            except NonFiniteLossError as error:
                raise in_training(error, self._precision, self._last_good()) from None
            seconds = time.perf_counter() - start
            if self.profile:
                self.profile.after(engine.step)
            pace.add(steps, metrics.examples, seconds)
            speed = metrics.examples / seconds
            point = Point(engine.step, metrics.loss, metrics.values, engine.learning_rate, speed)
            self.curve.add(point)
            self.callbacks.step(point, steps)
            eta_seconds = pace.eta_seconds(self.total - engine.step)
            self.reporter.train(point, self.total, eta_seconds)

    def _agreed_steps(self) -> int:
        """Steps of the next call: the chief's number, since each worker measures another pace."""
        steps = self._pace.steps_per_call if self.chief else 0
        stops, steps_of_all = self.engine.sum_over_workers([float(self.stop()), float(steps)])
        if stops:
            self._save()
            self._settle()
            raise Preempted(self.engine.step)
        return int(steps_of_all)

    def _evaluate(self, val_data: Any) -> None:
        self.on_phase("evaluate")
        step = self.engine.step
        self._add(evaluate(self.engine, step, val_data, self._precision, self._last_good))
        self._follow_evaluations()

    def _add(self, evaluation: Evaluation) -> None:
        self._history.evaluations.append(evaluation)
        self.reporter.evaluation(evaluation)

    def _save(self) -> None:
        step = self.engine.step
        if step == self._saved:
            return
        self.on_phase("save")
        self.checkpoints.flush()  # before the snapshot: memory holds only one
        needed = self._history.refresh()
        ranked = self._history.ranked()
        self.checkpoints.save(
            step,
            self.engine.snapshot(),
            {
                "curve": list(self.curve.points),
                "evaluations": [entry.flat() for entry in self._history.evaluations],
                "seconds": self._pace.seconds,
                "examples": self._pace.examples,
                "settings": self._settings,
                "finished": self._is_done,
            },
            best_step=ranked[0].step if ranked else step,
            needed=needed,
        )
        self._saved = step

    def _settle(self) -> None:
        """Waits until the chief's checkpoint is on the disk, where the other workers read it."""
        self.checkpoints.flush()
        self.engine.sum_over_workers([0.0])

    def _restore_best(self) -> Evaluation | None:
        kept = self.checkpoints.steps()
        for best in self._history.ranked():
            if best.step == self.engine.step:
                return best
            if best.step in kept:
                try:
                    self.engine.restore(self.checkpoints.load(best.step).state)
                    return best
                except checkpoint_files.UnreadableCheckpointError as error:
                    _log.warning("Unreadable checkpoint; using the next best: %s", error)
        return None

    @property
    def _precision(self) -> str:
        return str(self._settings.get("parallel_precision", "float32"))

    def _last_good(self) -> str:
        """Names the last checkpoint, in the message of a loss that is not finite."""
        if not self.checkpoints.root.exists():
            return ""
        try:
            self.checkpoints.flush()
        except UserError as error:  # the diverged loss is the more important error
            _log.warning("The last checkpoint was not written: %s", error)
        steps = self.checkpoints.steps()
        kept = f"; the last good checkpoint is step {steps[-1]}" if steps else ""
        return f"{kept} (checkpoints: {self.checkpoints.root})"
