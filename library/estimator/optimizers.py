"""Optimizers of canned models as settings. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.schemas import signatures
from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.registry import UnknownNameError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.optimization.optimizer import TAKEN

Optimizer = Any
"""A name; ``{"name": "ftrl", "learning_rate": 0.1, …}``; or a ``keras.optimizers.Optimizer``."""

_USE = '"Ftrl", {"name": "ftrl", "learning_rate": 0.1}, or an optimizer of Keras'


def settings(parts: Mapping[str, tuple[str, Optimizer, float]]) -> dict[str, Any]:
    """Settings of ``train`` for one optimizer, or for one of each part.

    Args:
        parts: pattern of the weights -> name of the argument, its value, and the learning rate of
            a value that has none. The last pattern is that of all other weights.

    Raises:
        SettingError: an argument is no optimizer.
    """
    found = {pattern: _parsed(*given) for pattern, given in parts.items()}
    rates = {pattern: each.pop("learning_rate") for pattern, each in found.items()}
    rate = [*rates.values()][-1]
    result = {
        "learning_rate": rate,
        "schedule": "constant",
        "weight_decay": 0.0,
        "momentum": _momentum(found, {pattern: given[0] for pattern, given in parts.items()}),
    }
    if len(found) == 1:
        [own] = found.values()
        return result | {"optimizer": own.pop("name"), "optimizer_args": own or None}
    factors = {pattern: each / rate for pattern, each in rates.items() if each != rate}
    return result | {
        "optimizer": "parts",
        "optimizer_args": found,
        "learning_rate_multipliers": factors or None,
    }


def _momentum(found: Mapping[str, dict[str, Any]], arguments: Mapping[str, str]) -> float:
    """The momentum of SGD, which is a setting of its own; taken out of ``found``."""
    momenta: dict[float, str] = {}
    for pattern, own in found.items():
        if own["name"] == "sgd":
            momenta[own.pop("momentum", 0.0)] = arguments[pattern]
            own.setdefault("nesterov", False)
    if len(momenta) > 1:
        argument = [*momenta.values()][-1]
        problem = "are two values of momentum for sgd"
        raise SettingError(argument, sorted(momenta), problem, "the same momentum for both parts")
    return next(iter(momenta), 0.0)


def _parsed(argument: str, given: Optimizer, rate: float) -> dict[str, Any]:
    """Name, learning rate, and arguments."""
    if isinstance(given, str):
        result: dict[str, Any] = {"name": given}
    elif isinstance(given, Mapping) and isinstance(given.get("name"), str):
        result = dict(given)
    elif callable(getattr(given, "get_config", None)):
        result = _of_object(argument, given)
    else:
        raise SettingError(argument, given, "is no optimizer", _USE)
    try:
        result["name"] = registries.OPTIMIZERS.get(result["name"]).name
    except SettingError as error:
        problem = f"is no optimizer here ({error})"
        if isinstance(error, UnknownNameError):
            problem = "does not exist"
        raise SettingError(argument, result["name"], problem, error.suggestion) from error
    own = result.setdefault("learning_rate", rate)
    if isinstance(own, bool) or not isinstance(own, (int, float)) or own <= 0:
        problem = "has a learning rate that is not a number above 0"
        use = "a number, and train.schedule for a schedule"
        raise SettingError(argument, own, problem, use)
    return result


def _of_object(argument: str, given: Any) -> dict[str, Any]:
    """Name, and the arguments that differ from the class's defaults."""
    name, config = type(given).__name__, given.get_config()
    defaults = signatures.arguments("keras.optimizers", name)
    if not defaults:
        raise SettingError(argument, name, "is no class of keras.optimizers", _USE)
    fresh = type(given)().get_config()
    changed = {
        key: value for key, value in config.items() if key != "name" and fresh.get(key) != value
    }
    for key in changed:
        if key in TAKEN and key != "learning_rate":
            raise SettingError(argument, name, f"sets {key}", TAKEN[key])
    rate = config.get("learning_rate")
    if isinstance(rate, float):
        rate = float(f"{rate:.8g}")  # Keras holds it as float32
    return {"name": name.lower(), **changed, "learning_rate": rate}
