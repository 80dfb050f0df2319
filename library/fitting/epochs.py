"""What happens at the ends of epochs: history, progress bar, Keras's callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.utils import io_utils

from stagecraft.fitting.history import History
from stagecraft.fitting.task import RowCount
from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.data.tasks.metric import Metric
from stagecraft.trainer_module.processes import events
from stagecraft.trainer_module.training.callbacks import Callbacks
from stagecraft.trainer_module.training.monitoring.curve import Point

_log = logging.getLogger(__name__)

_SCHEDULE = "an optimizer with a keras.optimizers.schedules.LearningRateSchedule"

_REFUSED = {
    "BackupAndRestore": "checkpoint_dir, which keeps checkpoints and resumes",
    "LearningRateScheduler": _SCHEDULE,
    "ReduceLROnPlateau": _SCHEDULE,
}
"""Class of Keras -> what works."""

_OF_BATCHES = tuple(
    f"on_{kind}batch_{when}"
    for kind in ("", "train_", "test_", "predict_")
    for when in ("begin", "end")
)

METHODS = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_end")
"""Methods of ``keras.callbacks.Callback`` that are called."""


def check(callbacks: Sequence[Any]) -> None:
    """Refuses callbacks that would not work.

    Raises:
        SettingError: a callback wants a call for each batch, or sets the learning rate.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if name in _REFUSED and isinstance(callback, keras.callbacks.Callback):
            raise SettingError("callbacks", name, "has no effect here", _REFUSED[name])
        if name == "ModelCheckpoint" and callback.save_freq == "epoch":
            continue
        for method in _OF_BATCHES:
            own = getattr(callback, method, None)
            if own and getattr(own, "__func__", own) is not vars(keras.callbacks.Callback)[method]:
                problem = f"has {method}, but one call of the engine takes several batches"
                raise SettingError("callbacks", name, problem, f"one of {', '.join(METHODS)}")
        if not any(callable(getattr(callback, method, None)) for method in METHODS):
            raise SettingError(
                "callbacks", name, "has no method of a callback", f"one of {', '.join(METHODS)}"
            )


class Epochs(Callbacks):
    """Follows a training of ``fit``, on the chief; on other workers it only knows the epochs."""

    def __init__(
        self,
        history: History,
        *,
        epochs: int,
        steps: int,
        short: bool,
        batch_size: int,
        validation_freq: int,
        metrics: Sequence[Metric],
        callbacks: Sequence[Any],
        update: Callable[[], Any],
        verbose: int,
        folder: str | None,
        chief: bool,
    ):
        """Takes what is called.

        Args:
            steps: of an epoch.
            short: whether the last batch of an epoch has fewer examples.
            batch_size: examples of a step.
            validation_freq: epochs between validations.
            callbacks: the caller's.
            update: gives the caller's model the weights of the engine, and returns it.
            folder: of the checkpoints; None: there are none.
        """
        super().__init__()
        self.epoch_steps = steps
        self._history, self._epochs, self._short = history, epochs, short
        self._callbacks, self._update = list(callbacks) if chief else [], update
        self._verbose, self._folder, self._chief = verbose if chief else 0, folder, chief
        self._logs: dict[str, float] = {}
        self._rows = 0.0
        self._bar: Any = None
        self._epoch = 0
        self._model: Any = None
        self._batch_size, self._validation_freq = batch_size, validation_freq
        self._single = False
        self._higher = {"loss": False} | {each.name: each.higher_is_better for each in metrics}
        names = [name for name in self._higher if name != RowCount.name]
        self._names = [*names, *(f"val_{name}" for name in names)]

    def start(self, step: int) -> None:
        """Continues after a step: reads the history of the epochs before it."""
        self._epoch = step // self.epoch_steps
        if self._folder and step:
            self._history.read(self._folder, self._epoch)

    def boundary(self, step: int) -> int:
        """As for all callbacks; a short batch is a call by itself, which counts less."""
        end = super().boundary(step)
        if self._single:
            return step + 1
        return end - 1 if self._short and step < end - 1 else end

    def begin(self) -> None:
        """Before the first step."""
        if self._callbacks:
            model = self._model = self._update()
            model.stop_training = False
            for callback in self._callbacks:
                self._direct(callback)
                if callable(getattr(callback, "set_params", None)):
                    callback.set_params(self._history.params)
                if callable(getattr(callback, "set_model", None)):
                    callback.set_model(model)
        self._each("on_train_begin", {})
        self._begin_epoch()

    def step(self, point: Point, steps: int) -> None:
        """After a call of the engine: adds its means, each by its examples."""
        metrics = dict(point.metrics)
        rows = metrics.pop(RowCount.name)
        if steps > 1 and rows < steps * self._batch_size:
            self._single = True  # the loss is a mean over steps, not over examples
            if self._chief:
                self._tell_short()
        for name, value in {"loss": point.loss, **metrics}.items():
            self._sums[name] = self._sums.get(name, 0.0) + rows * value
        self._rows += rows
        self._logs = {name: value / self._rows for name, value in self._sums.items()}
        if self._bar is not None:
            done = (point.step - 1) % self.epoch_steps + 1
            self._bar.update(done, list(self._logs.items()), finalize=False)

    def _tell_short(self) -> None:
        text = (
            f"x: epoch {self._epoch + 1} has a short batch before its last one; in its history, "
            "the loss of this batch counts as that of a whole one; "
            f"dataset.unbatch().batch({self._batch_size}) makes equal batches"
        )
        _log.warning(text)
        events.emit("progress", phase="warning", warning=text)

    def epoch_end(self, step: int, evaluation: Evaluation | None) -> None:
        """After a step, if it ends an epoch; with the evaluation after this step."""
        if step % self.epoch_steps or not self._logs:
            return
        logs = dict(self._logs)
        if evaluation is not None and (self._epoch + 1) % self._validation_freq == 0:
            values = {"loss": evaluation.loss, **evaluation.metrics}
            values.pop(RowCount.name)
            logs |= {f"val_{name}": value for name, value in values.items()}
        if self._bar is not None:
            self._bar.update(self.epoch_steps, list(logs.items()), finalize=True)
        if self._callbacks:
            model = self._update()
            self._each("on_epoch_end", self._epoch, logs)  # a callback may add to them
            self.stops = bool(model.stop_training)
        self._history.add(self._epoch, logs)
        if self._chief:
            events.emit("progress", phase="epoch", epoch=self._epoch, logs=logs)
        if self._chief and self._folder:
            self._history.write(self._folder)
        self._epoch, self._sums, self._rows = self._epoch + 1, {}, 0.0
        if not self.stops and self._epoch < self._epochs:
            self._begin_epoch()

    def end(self) -> None:
        """After the last step; a callback may set the weights of the model."""
        if self._logs:
            self._each("on_train_end", dict(self._logs))

    def _begin_epoch(self) -> None:
        self._each("on_epoch_begin", self._epoch, {})
        if not self._verbose:
            return
        self._bar = progress_bar(
            self._epoch, self._epochs, self.epoch_steps, self._verbose, self._names
        )

    def _direct(self, callback: Any) -> None:
        """Says to a callback of Keras whether more is better; it would look for model.metrics."""
        decide = getattr(callback, "_set_monitor_op", None)
        if not callable(decide) or callback.mode != "auto" or callback.monitor_op is not None:
            return
        known = self._higher.get(callback.monitor.removeprefix("val_"))
        if known is None:
            problem = f"monitors {callback.monitor}, which is unknown"
            use = " or ".join(self._names)
            raise SettingError("callbacks", type(callback).__name__, problem, use)
        callback.mode = "max" if known else "min"
        decide()
        callback.mode = "auto"

    def _each(self, method: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            function = getattr(callback, method, None)
            if not callable(function):
                continue
            name, before = type(callback).__name__, self._rate()
            weights = self._weights_before(callback, method)
            try:
                function(*arguments)
            except (AttributeError, ValueError) as error:
                if "optimizer" not in str(error) and "compile()" not in str(error):
                    raise
                problem = f"needs a compiled model in {method}: {said(error)}"
                use = "the logs, and the weights of self.model"
                raise SettingError("callbacks", name, problem, use) from error
            if self._rate() != before:
                problem = f"sets the learning rate in {method}, which has no effect here"
                raise SettingError("callbacks", name, problem, _SCHEDULE)
            if weights is not None and not _are_equal(weights, self._weights()):
                problem = f"sets weights in {method}, which has no effect here"
                raise SettingError("callbacks", name, problem, "on_train_end")
            if method.endswith("_begin") and self._model.stop_training:
                problem = f"sets stop_training in {method}"
                raise SettingError("callbacks", name, problem, "on_epoch_end")

    def _weights(self) -> list[np.ndarray]:
        return [weight.numpy() for weight in self._model.weights]

    def _weights_before(self, callback: Any, method: str) -> list[np.ndarray] | None:
        """The weights, if the method is the caller's own and may not set them."""
        is_own = not type(callback).__module__.startswith("keras.")
        return self._weights() if is_own and method != "on_train_end" else None

    def _rate(self) -> float | None:
        """Learning rate of the caller's compiled model; the engine has an optimizer of its own."""
        rate = getattr(getattr(self._model, "optimizer", None), "learning_rate", None)
        return None if rate is None else float(rate)


def _are_equal(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(*pair, equal_nan=True) for pair in zip(some, others, strict=True))


def progress_bar(
    epoch: int, epochs: int, steps: int, verbose: int, metrics: Sequence[str]
) -> keras.utils.Progbar:
    """Keras's bar of an epoch, below the epoch's number."""
    if verbose == 1:
        io_utils.print_msg(f"Epoch {epoch + 1}/{epochs}")
    return keras.utils.Progbar(
        steps,
        verbose=verbose,
        stateful_metrics=list(metrics),  # these are means already
        unit_name="step",
    )
