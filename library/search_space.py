"""The space of a search: values, or a range, for each setting by its dotted name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.settings import hyperparameters

_RANGE = ("min", "max", "log", "step")

Space = Mapping[str, Any]
"""Setting, such as ``parallel.stages`` -> a list of values, or a range ``{min, max}`` with ``log:
true`` or a ``step``."""


def parse(space: Any) -> Any:
    """``keras_tuner.HyperParameters`` of a space.

    Args:
        space: a mapping from settings to values or ranges; or ``HyperParameters``, whose names
            without a dot are for the user's own code.

    Raises:
        SettingError: a name is not a setting, or the values are neither a list nor a range.
    """
    import keras_tuner

    if isinstance(space, keras_tuner.HyperParameters):
        hyperparameters.values({"values": space.values})
        return space
    if not isinstance(space, Mapping) or not space:
        use = "a mapping such as {parallel.stages: [1, 2]}"
        raise SettingError("space", space, "is not a search space", use, shown=repr(space))
    found = keras_tuner.HyperParameters()
    for name, values in space.items():
        hyperparameters.check(name)
        try:
            _add(found, name, values)
        except (TypeError, ValueError) as error:
            if isinstance(error, SettingError):
                raise
            raise SettingError(f"space.{name}", values, f"is refused: {error}") from error
    return found


def _add(found: Any, name: str, values: Any) -> None:
    if isinstance(values, Mapping):
        _add_range(found, name, values)
    elif isinstance(values, Sequence) and not isinstance(values, str) and values:
        found.Choice(name, list(values))
    else:
        use = "a list such as [1, 2], or a range such as {min: 0.001, max: 0.1, log: true}"
        raise SettingError(f"space.{name}", values, "is neither a list nor a range", use)


def _add_range(found: Any, name: str, values: Mapping[str, Any]) -> None:
    unknown = sorted(values.keys() - {*_RANGE})
    if unknown or not {"min", "max"} <= values.keys():
        use = "min and max, with log: true or a step"
        raise SettingError(f"space.{name}", dict(values), "is not a range", use)
    least, most, step = values["min"], values["max"], values.get("step")
    whole = all(isinstance(each, int) for each in (least, most))
    add = found.Int if whole else found.Float
    more = {} if step is None else {"step": step}
    add(name, least, most, sampling="log" if values.get("log") else "linear", **more)
