"""Values of ``train.optimizer`` without a file: classes of Keras, and the user's own objects.

Imports neither TensorFlow nor Keras: it reads what there is from Keras's sources.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.common import signatures, user_objects
from stagecraft.common.errors import SettingError, UserError, said
from stagecraft.common.registry import UserEntry
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.optimization.optimizer import (
    TAKEN,
    KerasOptimizer,
    Optimizer,
    rates,
)
from stagecraft.trainer_module.settings import TrainSettings

_PACKAGE = "keras.optimizers"

_REFUSED = {
    "LossScaleOptimizer": (
        "scales the loss of one device alone",
        "parallel.precision: mixed_float16, which scales it on all devices together",
    ),
    "MultiOptimizer": (
        "chooses optimizers by layer",
        "one optimizer, with train.learning_rate_multipliers",
    ),
    "ScheduleFreeAdamW": (
        "evaluates other weights than it trains",
        "adamw, with train.ema_decay",
    ),
}
"""Class -> why no engine can use it, and what to use."""


ELEMENTWISE = frozenset(
    ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD")
)
"""Classes of Keras that compute each entry of a weight by itself."""


class OfKeras(KerasOptimizer):
    """A class of ``keras.optimizers``, found by its name."""

    def __init__(self, class_name: str):
        self.class_name = class_name
        self.name = class_name.lower()
        self.description = f"{_PACKAGE}.{class_name}"
        self.elementwise = class_name in ELEMENTWISE

    def slots_with(self, train: TrainSettings) -> float:
        """Counts the slots of a kernel."""
        return _slots(self.make(train))


class OfUser(UserEntry, Optimizer):
    """A ``keras.optimizers.Optimizer`` of the user's, or a function that returns one."""

    description = "an optimizer of your own"

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """The object's attribute of this name; imports its module."""
        return bool(getattr(user_objects.load("train.optimizer", self.name), "elementwise", False))

    def slots_with(self, train: TrainSettings) -> float:
        """Counts the slots of a kernel."""
        return _slots(self.make(train))

    @property
    def decays_all_weights(self) -> bool:
        """The attribute of this name of the user's function; without one, False."""
        found = user_objects.load("train.optimizer", self.name)
        return bool(getattr(found, "decays_all_weights", False))

    def make(self, train: TrainSettings) -> Any:
        """A new optimizer with the configuration of the user's, and our rate and weight decay.

        Raises:
            UserError: the name gives no optimizer, or one that cannot be made again.
        """
        found = self._found()
        config = found.get_config()
        for name, value in rates(train).items():
            if name in config:
                # Without weight decay, Keras's None saves an operation for each weight.
                config[name] = config[name] if value == (config[name] or 0.0) else value
        try:
            return _mended(type(found).from_config(config))
        except Exception as error:  # whatever the user's class raises
            raise UserError(
                f"train.optimizer: {self.name}: {type(found).__name__}.from_config does not accept "
                f"what get_config returns: {said(error)}",
                setting="train.optimizer",
                value=self.name,
            ) from error

    def verify(self, train: TrainSettings) -> None:
        """Checks that the optimizer contradicts no setting.

        Raises:
            SettingError: it sets what a setting stands for, or has another learning rate.
        """
        import keras

        found = self._found()
        name = type(found).__name__
        if name in _REFUSED:
            raise SettingError("train.optimizer", self.name, *_REFUSED[name])
        for argument in sorted(TAKEN.keys() - {*rates(train), "ema_momentum"}):
            if getattr(found, argument, None):
                raise SettingError(
                    "train.optimizer", self.name, f"sets {argument}", TAKEN[argument]
                )
        if not isinstance(found._learning_rate, keras.Variable):
            raise SettingError(
                "train.optimizer", self.name, "has a learning rate schedule", "train.schedule"
            )
        for argument, here in rates(train).items():
            if not hasattr(found, argument):
                continue
            there = getattr(found, argument)
            own = 0.0 if there is None else float(there)
            setting = TAKEN[argument].partition(" ")[0]
            if not math.isclose(own, here, rel_tol=1e-6):
                raise SettingError(
                    "train.optimizer",
                    self.name,
                    f"has {argument} {own:g}, but {setting} is {here:g}",
                    f"{setting}: {own:g}",
                )

    def check_weights(self, train: TrainSettings, weights: Sequence[Any]) -> None:
        """Calls the method of this name of the user's optimizer, if there is one."""
        if callable(check := getattr(self._found(), "check_weights", None)):
            check(weights)

    def _found(self) -> Any:
        import keras

        return user_objects.made("train.optimizer", self.name, keras.optimizers.Optimizer)


def _mended(optimizer: Any) -> Any:
    """Makes Keras's Muon work with TensorFlow and in float64; other optimizers do.

    Keras 3.12 reads the path of a variable, which only Keras's variables have. Later versions
    multiply with a number of the default dtype.
    """
    import keras

    from stagecraft.trainer_module.models.layers.random_state import floatx

    if type(optimizer) is not getattr(keras.optimizers, "Muon", None):
        return optimizer
    update_step = optimizer.update_step

    def update(gradient: Any, variable: Any, learning_rate: Any) -> Any:
        weight = optimizer._trainable_variables[optimizer._get_variable_index(variable)]
        with floatx(weight.dtype):
            return update_step(gradient, weight, learning_rate)

    optimizer.update_step = update
    return optimizer


def _slots(optimizer: Any) -> float:
    """Entries of all slots of a kernel, for each entry of it."""
    import keras

    kernel = keras.Variable(keras.ops.zeros((64, 64)), name="kernel")
    before = {id(variable) for variable in optimizer.variables}
    optimizer.build([kernel])
    sizes = [math.prod(each.shape) for each in optimizer.variables if id(each) not in before]
    return sum(sizes) / math.prod(kernel.shape)


def names() -> list[str]:
    """Names of Keras's optimizers, in lower case."""
    return sorted(_by_key())


def find(name: str) -> Optimizer | None:
    """The optimizer of Keras with this name in any case, or the user's; None: there is none.

    Raises:
        SettingError: no engine can use this optimizer of Keras.
    """
    if user_objects.is_name(name):
        return OfUser(name)
    key = name.replace("_", "").lower()
    if key in registries.OPTIMIZERS.files:
        found: Optimizer = registries.OPTIMIZERS.get(key)
        return found
    for class_name, why in _REFUSED.items():
        if class_name.lower() == key:
            raise SettingError("train.optimizer", name, *why)
    class_name = _by_key().get(key, "")
    return OfKeras(class_name) if class_name else None


def _by_key() -> Mapping[str, str]:
    return {
        name.lower(): name
        for name in signatures.classes(_PACKAGE)
        if name not in _REFUSED and "learning_rate" in signatures.arguments(_PACKAGE, name)
    }
