"""Reports the progress of a training: phases, an event about once a second, TensorBoard scalars."""

from __future__ import annotations

import datetime
import logging
import os
import time
from collections.abc import Callable

import tensorflow as tf

from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.processes import events
from stagecraft.trainer_module.training.monitoring.curve import Point

TRAIN, EXPORT = "train", "export"

_progress = logging.getLogger("stagecraft.progress")


class Reporter:
    """Writes scalars to ``folder/train`` and ``folder/val``, TensorBoard's layout."""

    def __init__(self, folder: str, noun: str = "images"):
        """``noun``: what people call the examples."""
        self._noun = noun
        self._writers = {
            split: tf.summary.create_file_writer(os.path.join(folder, split))
            for split in ("train", "val")
        }

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def resumed(self, step: int, total: int) -> None:
        """Reports that the training resumes after ``step``."""
        text = "resuming from step %d of %d"
        if step >= total:
            text += ": nothing is left to train"
        _progress.info(
            text, step, total, extra={"progress": {"phase": "resume", "step": step, "total": total}}
        )

    def chosen(self, precision: str, reason: str) -> None:
        """Reports the choice of ``parallel.precision: auto``."""
        fields = {"phase": "precision", "precision": precision, "reason": reason}
        _progress.info("precision %s: %s", precision, reason, extra={"progress": fields})

    def exporting(self) -> None:
        """Reports that the export begins."""
        _progress.info("exporting the model", extra={"progress": {"phase": "export"}})

    def train(self, point: Point, total: int, eta_seconds: float) -> None:
        """Reports the metrics of the steps since the last report."""
        _progress.info(
            "step %d of %d: %.0f %s/s, loss %.4f, %s%s left",
            point.step,
            total,
            point.images_per_second,
            self._noun,
            point.loss,
            "".join(f"{name} {value:.4f}, " for name, value in point.metrics.items()),
            datetime.timedelta(seconds=round(eta_seconds)),
            extra={
                "progress": {
                    **point.flat(),
                    "phase": "train",
                    "noun": self._noun,
                    "metrics": list(point.metrics),
                    "total": total,
                    "eta_seconds": eta_seconds,
                }
            },
        )
        self.log(point)

    def log(self, point: Point) -> None:
        """Writes the same metrics to TensorBoard alone."""
        scalars = point.flat()
        self._scalars("train", int(scalars.pop("step")), **scalars)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Writes the metrics of the whole val split after a step."""
        self._scalars("val", evaluation.step, loss=evaluation.loss, **evaluation.metrics)

    def _scalars(self, split: str, step: int, **values: float) -> None:
        with self._writers[split].as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)


class Phases:
    """Reports each phase that begins (train, evaluate, save, export), and sums up its seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._now: tuple[str, float] | None = None
        self._seconds: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """Begins a phase, and ends the one before."""
        self._add_elapsed()
        self._now = phase, self._clock()
        events.emit("phase", f"phase: {phase}", phase=phase)

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far, in this attempt."""
        self._add_elapsed()
        return dict(self._seconds)

    def _add_elapsed(self) -> None:
        if self._now is not None:
            phase, since = self._now
            now = self._clock()
            self._seconds[phase] = self._seconds.get(phase, 0.0) + now - since
            self._now = phase, now
