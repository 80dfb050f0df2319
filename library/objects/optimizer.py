"""A Keras optimizer as settings of ``train:``, with the same steps."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras

from stagecraft import named_objects
from stagecraft.common.errors import SettingError, said
from stagecraft.objects.compiled import near
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.layers import arguments
from stagecraft.trainer_module.optimization.keras_optimizers import ELEMENTWISE
from stagecraft.trainer_module.optimization.optimizers.muon.muon_optimizer import Muon

_REFUSED = {
    "clipnorm": "global_clipnorm, the norm over all gradients",
    "use_ema": "use_ema=False",
    "loss_scale_factor": "Parallel(precision='mixed_float16'), which scales the loss",
    "gradient_accumulation_steps": "Parallel(accumulate=…)",
}
"""Argument -> what works."""

_RATES = ("learning_rate", "weight_decay")

_MAPPED = (*_RATES, "global_clipnorm", "clipvalue")


class Optimizer:
    """Makes an optimizer by class and configuration; called by ``train.optimizer``."""

    decays_all_weights = True
    """Applies weight decay as Keras does: not to kernels alone."""

    def __init__(self, optimizer: keras.optimizers.Optimizer, config: Mapping[str, Any]):
        self._kind, self._config = type(optimizer), dict(config)

    @property
    def elementwise(self) -> bool:
        """Whether replicas may divide its slots (``parallel.zero``)."""
        kind = self._kind
        return kind.__module__.partition(".")[0] == "keras" and kind.__name__ in ELEMENTWISE

    def get_config(self) -> Mapping[str, Any]:
        """The configuration on which the optimizer's name depends.

        Not Keras's own name, which counts the optimizers of a process.
        """
        config = {key: value for key, value in self._config.items() if key != "name"}
        return {"class": self._kind.__qualname__, **config}

    def __call__(self) -> keras.optimizers.Optimizer:
        """A new optimizer, without slots."""
        return self._kind.from_config(dict(self._config))


def _check_copy(found: keras.optimizers.Optimizer, made: keras.optimizers.Optimizer) -> None:
    """Refuses an optimizer whose ``get_config`` lacks an argument."""
    one, two = arguments.plain(found), arguments.plain(made)
    for name in (one.keys() & two.keys()).difference(_MAPPED):
        if one[name] != two[name]:
            raise SettingError(
                "train.optimizer",
                type(found).__name__,
                f"has {name}={one[name]!r}, and a copy from its configuration {two[name]!r}",
                f"a get_config that returns {name}",
            )


def settings(optimizer: Any) -> tuple[dict[str, Any], list[str]]:
    """Settings of ``train:`` for an optimizer, and the names of given objects in them.

    The optimizer begins without slots: only its configuration counts.

    Args:
        optimizer: the name of a Keras optimizer, or an object.

    Raises:
        SettingError: it is neither, or it does what no engine does.
    """
    found = _found(optimizer)
    name = type(found).__name__
    if name == "LossScaleOptimizer":
        use = _REFUSED["loss_scale_factor"]
        raise SettingError("train.optimizer", name, "scales the loss of one device alone", use)
    config = found.get_config()
    for argument, use in _REFUSED.items():
        if config.get(argument):
            problem = f"sets {argument}={config[argument]}, which Stagecraft does not support"
            raise SettingError("train.optimizer", name, problem, use)
    if getattr(found, "_exclude_from_weight_decay", None) or getattr(
        found, "_exclude_from_weight_decay_pattern", None
    ):
        raise SettingError(
            "train.optimizer",
            name,
            "excludes weights from weight decay, which its configuration does not say",
            "weight_decay=None, or weight decay for all weights",
        )
    schedule = found._learning_rate
    train: dict[str, Any] = {
        "schedule": "constant",
        "weight_decay": float(config.get("weight_decay") or 0.0),
    }
    for argument, setting in (("global_clipnorm", "clip_norm"), ("clipvalue", "clip_value")):
        if config.get(argument):
            train[setting] = float(config[argument])
    names = []
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        train["schedule"] = named_objects.put("schedule", schedule)
        train["learning_rate"] = 1.0  # the schedule gives the rate itself
        names.append(train["schedule"])
    else:
        train["learning_rate"] = _exact(float(found.learning_rate))
    rest = {key: value for key, value in config.items() if key not in _MAPPED}
    rest["learning_rate"] = train["learning_rate"]
    if "weight_decay" in config:
        rest["weight_decay"] = config["weight_decay"]
    made = Optimizer(found, rest)
    _check_copy(found, made())
    train["optimizer"] = named_objects.put("optimizer", made)
    return train, [*names, train["optimizer"]]


def of_name(name: str) -> dict[str, Any]:
    """Settings of ``train:`` for a name, with the rates that Keras's class has by default.

    Makes no optimizer, whose variables would start TensorFlow before a worker has connected.

    Raises:
        SettingError: there is no such optimizer.
    """
    entry = registries.OPTIMIZERS.get(name)
    found: dict[str, Any] = {"optimizer": entry.name, "schedule": "constant", "momentum": 0.0}
    kind = getattr(keras.optimizers, getattr(entry, "class_name", ""), None)
    known = {} if kind is None else inspect.signature(kind).parameters
    rates = {rate: float(known[rate].default or 0.0) for rate in _RATES if rate in known}
    return {**found, **rates, **entry.in_library}


def _found(optimizer: Any) -> keras.optimizers.Optimizer:
    if isinstance(optimizer, str) and optimizer.lower() == "muon":
        return Muon()  # as train.optimizer: muon; that of Keras leaves out convolutions
    try:
        found = keras.optimizers.get(optimizer)
    except (TypeError, ValueError) as error:
        raise SettingError(
            "train.optimizer",
            optimizer,
            f"is refused by Keras: {said(error)}",
            near(keras.optimizers, optimizer).lower() or "adam",
        ) from error
    if not isinstance(found, keras.optimizers.Optimizer):
        raise SettingError(
            "train.optimizer", type(optimizer).__name__, "is not a Keras 3 optimizer", "adam"
        )
    return found


def _exact(rate: float) -> float:
    """The number that was given: an optimizer keeps 0.001 as a float32."""
    short = float(f"{rate:.6g}")
    return short if abs(short - rate) <= 1e-7 * abs(rate) else rate
