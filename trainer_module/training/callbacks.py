"""Callbacks of the user's (``train.callbacks``), which the chief calls between engine calls.

A callback is any object with some of these methods, as those of ``keras.callbacks.Callback``::

    on_train_begin(logs)        before the first step of this attempt
    on_step(step, logs)         about once a second; ``step`` counts all steps so far
    on_epoch_end(epoch, logs)   after the last step of an epoch, which counts from 0
    on_train_end(logs)          after the last step, unless an error ends the training

``logs`` is a dictionary of numbers: ``loss``, the task's metrics, ``learning_rate`` and
``images_per_second``. They are means over the steps since the last call of ``on_step``; in
``on_epoch_end``, over this attempt's steps of the epoch, with ``val_loss`` and so on if the epoch
ends with an evaluation. ``on_train_begin`` gets an empty dictionary, ``on_train_end`` that of the
last ``on_step``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.common import user_objects
from stagecraft.common.errors import SettingError, UserError, said
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.training.monitoring.curve import Point

SETTING = "train.callbacks"

METHODS = ("on_train_begin", "on_step", "on_epoch_end", "on_train_end")


class Callbacks:
    """The callbacks of a training; without names, or on another worker, it does nothing."""

    def __init__(self, names: Sequence[str] = (), epoch_steps: int = 0, chief: bool = True):
        """Makes an object of each named class, on the chief.

        Args:
            epoch_steps: steps of an epoch.
            chief: whether this worker is the chief.

        Raises:
            UserError: there is no such class, it cannot be made, or it has none of the methods.
        """
        self._called = {name: _make(name) for name in names} if chief else {}
        self.epoch_steps = epoch_steps if names else 0
        """Steps of an epoch, on all workers; 0: there are no callbacks."""
        self.stops = False
        """Whether the training is to stop at the end of the epoch."""
        self._last: dict[str, float] = {}
        self._sums: dict[str, float] = {}
        self._steps = 0

    def boundary(self, step: int) -> int:
        """The step after ``step`` up to which one call of the engine may go; 0: any."""
        epoch = self.epoch_steps
        return (step // epoch + 1) * epoch if epoch else 0

    def begin(self) -> None:
        """Before the first step."""
        self._call("on_train_begin", {})

    def step(self, point: Point, steps: int) -> None:
        """After a call of the engine, which took ``steps``."""
        if not self._called:
            return
        self._last = _without_step(point.flat())
        for name, value in self._last.items():
            self._sums[name] = self._sums.get(name, 0.0) + steps * value
        self._steps += steps
        self._call("on_step", point.step, dict(self._last))

    def epoch_end(self, step: int, evaluation: Evaluation | None) -> None:
        """After a step, if it ends an epoch; with the evaluation after this step."""
        if not self.epoch_steps or step % self.epoch_steps or not self._steps:
            return
        logs = {name: value / self._steps for name, value in self._sums.items()}
        if evaluation:
            values = _without_step(evaluation.flat())
            logs |= {f"val_{name}": value for name, value in values.items()}
        self._sums, self._steps = {}, 0
        self._call("on_epoch_end", step // self.epoch_steps - 1, logs)

    def end(self) -> None:
        """After the last step, if this attempt took one."""
        if self._last:
            self._call("on_train_end", dict(self._last))

    def _call(self, method: str, *arguments: Any) -> None:
        for name, callback in self._called.items():
            function = getattr(callback, method, None)
            if function is None:
                continue
            try:
                function(*arguments)
            except Exception as error:  # whatever the user's method raises
                raise UserError(
                    f"{SETTING}: {name}: {method} failed: {said(error)}",
                    setting=SETTING,
                    value=name,
                ) from error


def _without_step(entry: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in entry.items() if name != "step"}


def _make(name: str) -> Any:
    found = user_objects.load(SETTING, name)
    try:
        callback = found() if callable(found) else found
    except Exception as error:  # whatever the user's class raises
        raise UserError(
            f"{SETTING}: {name}() failed: {said(error)}", setting=SETTING, value=name
        ) from error
    if not any(callable(getattr(callback, method, None)) for method in METHODS):
        raise SettingError(
            SETTING, name, "has no method of a callback", f"one of {', '.join(METHODS)}"
        )
    return callback
