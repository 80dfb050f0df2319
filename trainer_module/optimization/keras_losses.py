"""Values of ``train.loss`` without a file: classes of Keras, and the user's own objects.

Imports neither TensorFlow nor Keras: it reads what there is from Keras's sources.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from stagecraft.common import signatures, user_objects
from stagecraft.common.errors import SettingError, said
from stagecraft.common.registry import UserEntry
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.optimization.loss import ARGS, Loss, Losses
from stagecraft.trainer_module.settings import TrainSettings

_PACKAGE = "keras.losses"

_REFUSED = {
    "Circle": ("compares the examples of a batch", "a loss that depends on one example alone")
}
"""Class -> why no engine can use it, and what to use."""

_SPARSE = ("CTC", "SparseCategoricalCrossentropy")
"""Classes that take integers as targets."""

_OF_PROBABILITIES = ("CategoricalGeneralizedCrossEntropy", "Dice", "KLDivergence", "Tversky")
"""Classes for probabilities that have no argument ``from_logits``."""

_OF_DIFFERENCES = ("Huber", "LogCosh", "MeanAbsoluteError", "MeanSquaredError")
"""Classes that depend on the difference of targets and outputs alone."""

_SHORT = {
    "bce": "binarycrossentropy",
    "kld": "kldivergence",
    "mae": "meanabsoluteerror",
    "mape": "meanabsolutepercentageerror",
    "mse": "meansquarederror",
    "msle": "meansquaredlogarithmicerror",
}
"""Keras's abbreviations."""

_SMOOTHING = "label_smoothing"


class OfKeras(Loss):
    """A class of ``keras.losses``, found by its name."""

    def __init__(self, class_name: str):
        self.class_name = class_name
        self.name = _snake(class_name)
        self.description = f"{_PACKAGE}.{class_name}"

    @functools.cached_property
    def _known(self) -> dict[str, bool]:
        known = signatures.arguments(_PACKAGE, self.class_name)
        return {name: known[name] for name in known if name not in ("name", "reduction", "dtype")}

    @property
    def smooths(self) -> bool:  # type: ignore[override]
        """Whether the class has the argument ``label_smoothing``."""
        return _SMOOTHING in self._known

    @property
    def needs_zero(self) -> bool:  # type: ignore[override]
        """Whether the loss depends on more than the difference of targets and outputs."""
        return self.class_name not in _OF_DIFFERENCES

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names against the class's signature, without importing Keras."""
        signatures.check(ARGS, arguments, self._known, {_SMOOTHING: f"train.{_SMOOTHING}"})

    def make(self, task: Task, arguments: Mapping[str, Any], train: TrainSettings) -> Losses:
        """Computes Keras's loss of logits; integer targets become one-hot where it needs that."""
        import keras
        import tensorflow as tf

        kind = getattr(keras.losses, self.class_name)
        given = ({"from_logits": True} if "from_logits" in self._known else {}) | dict(arguments)
        plain = smooth = _made(kind, given)
        if self.smooths and train.label_smoothing:
            smooth = _made(kind, given | {_SMOOTHING: train.label_smoothing})

        def losses(outputs: Any, targets: Any, dtype: Any, smoothed: bool) -> Any:
            outputs, labels = _prepared(outputs, targets, dtype)
            if self.class_name not in _SPARSE:
                if labels.dtype.is_integer and outputs.shape.rank == labels.shape.rank + 1:
                    labels = tf.one_hot(labels, outputs.shape[-1])
                labels = tf.cast(labels, outputs.dtype)
            if self.class_name in _OF_PROBABILITIES:
                last = outputs.shape[-1]
                outputs = tf.sigmoid(outputs) if last == 1 else tf.nn.softmax(outputs)
            values = _computed((smooth if smoothed else plain).call, labels, outputs)
            return task.per_example(values, targets)

        return losses


class OfUser(UserEntry, Loss):
    """A ``keras.losses.Loss`` of the user's, or a function of targets and outputs."""

    description = "a loss of your own"

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Any names: they are known when the module is imported."""

    def make(self, task: Task, arguments: Mapping[str, Any], train: TrainSettings) -> Losses:
        """Calls the user's object with targets and outputs.

        Raises:
            SettingError: the name gives no loss, or it does not take the arguments.
        """
        import keras

        found = user_objects.load("train.loss", self.name)
        if inspect.isclass(found) and issubclass(found, keras.losses.Loss):
            found = _made(found, arguments)
            arguments = {}
        if isinstance(found, keras.losses.Loss):
            signatures.refuse_any(ARGS, arguments, f"train.loss: {self.name}, which is an object")
            call = found.call
        elif inspect.isclass(found) or not callable(found):
            raise SettingError(
                "train.loss",
                self.name,
                f"is {found.__name__ if inspect.isclass(found) else type(found).__name__}",
                "a keras Loss, or a function of targets and outputs",
            )
        else:
            call = functools.partial(found, **arguments)

        def losses(outputs: Any, targets: Any, dtype: Any, smoothed: bool) -> Any:
            outputs, labels = _prepared(outputs, targets, dtype)
            return task.per_example(_computed(call, labels, outputs), targets)

        return losses


def _made(kind: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise SettingError(
            ARGS, dict(arguments), f"is refused by {kind.__name__}: {said(error)}"
        ) from error


def _prepared(outputs: Any, targets: Any, dtype: Any) -> tuple[Any, Any]:
    """Outputs of at least ``dtype``; float targets of that dtype, and of the outputs' rank."""
    import tensorflow as tf

    outputs = outputs if outputs.dtype == tf.float64 else tf.cast(outputs, dtype)
    if outputs.shape.rank == targets.shape.rank + 1 and outputs.shape[-1] == 1:
        targets = targets[..., tf.newaxis]  # otherwise they broadcast: [batch, batch]
    return outputs, tf.cast(targets, outputs.dtype) if targets.dtype.is_floating else targets


def _computed(call: Callable[[Any, Any], Any], targets: Any, outputs: Any) -> Any:
    """The values, without a reduction over the batch; constants of Keras have the same dtype."""
    from stagecraft.trainer_module.models.layers.random_state import floatx

    with floatx(outputs.dtype.name):
        return call(targets, outputs)


def names() -> list[str]:
    """Names of Keras's losses, as in ``categorical_crossentropy``."""
    return sorted(map(_snake, _by_key().values()))


def find(name: str) -> Loss | None:
    """The loss of Keras with this name, or the user's; None: there is none.

    Raises:
        SettingError: no engine can use this loss of Keras.
    """
    if user_objects.is_name(name):
        return OfUser(name)
    key = name.replace("_", "").lower()
    key = _SHORT.get(key, key)
    for class_name, why in _REFUSED.items():
        if class_name.lower() == key:
            raise SettingError("train.loss", name, *why)
    class_name = _by_key().get(key, "")
    return OfKeras(class_name) if class_name else None


def _by_key() -> Mapping[str, str]:
    left_out = {"Loss", *_REFUSED}
    return {name.lower(): name for name in signatures.classes(_PACKAGE) if name not in left_out}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
