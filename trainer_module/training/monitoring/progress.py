"""Reports the progress of a training: an event about once a second, and TensorBoard scalars."""

from __future__ import annotations

import datetime
import logging
import os

import tensorflow as tf

from stagecraft.trainer_module.training.monitoring.curve import Point

_progress = logging.getLogger("stagecraft.progress")


class Reporter:
    """Writes scalars to ``folder/train`` and ``folder/val``, TensorBoard's layout."""

    def __init__(self, folder: str):
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

    def exporting(self) -> None:
        """Reports that the export begins."""
        _progress.info("exporting the model", extra={"progress": {"phase": "export"}})

    def train(self, point: Point, total: int, eta_seconds: float) -> None:
        """Reports the metrics of the steps since the last report."""
        _progress.info(
            "step %d of %d: %.0f images/s, loss %.4f, accuracy %.4f, %s left",
            point.step,
            total,
            point.images_per_second,
            point.loss,
            point.accuracy,
            datetime.timedelta(seconds=round(eta_seconds)),
            extra={
                "progress": {
                    **point._asdict(),
                    "phase": "train",
                    "total": total,
                    "eta_seconds": eta_seconds,
                }
            },
        )
        self.log(point)

    def log(self, point: Point) -> None:
        """Writes the same metrics to TensorBoard alone."""
        scalars = point._asdict()
        self._scalars("train", scalars.pop("step"), **scalars)

    def evaluation(self, step: int, loss: float, accuracy: float) -> None:
        """Writes the metrics of the whole val split after ``step``."""
        self._scalars("val", step, loss=loss, accuracy=accuracy)

    def _scalars(self, split: str, step: int, **values: float) -> None:
        with self._writers[split].as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)
