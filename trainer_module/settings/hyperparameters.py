"""Values that a search found, in place of settings. Imports neither TensorFlow nor KerasTuner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.common.errors import SettingError, nearest
from stagecraft.trainer_module.settings import TrainingSettings

_EXCLUSIVE = {"train_steps": "train_epochs", "train_epochs": "train_steps"}


def known() -> list[str]:
    """Names of all settings, such as ``parallel.stages``."""
    return [
        f"{section}.{name}"
        for section, outer in TrainingSettings.model_fields.items()
        for name in outer.annotation.model_fields  # type: ignore[union-attr]
    ]


def check(name: str) -> str:
    """Returns the name of a setting.

    Raises:
        SettingError: there is no such setting.
    """
    names = known()
    if name not in names:
        use = nearest(name, names, "a name such as train.learning_rate or parallel.stages")
        raise SettingError("hyperparameters", name, "is not a setting", use)
    return name


def values(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values in ``HyperParameters.get_config()`` that stand for settings.

    Names without a dot are not settings: the user's own code reads them.

    Raises:
        SettingError: a name with a dot is not a setting.
    """
    found = (config or {}).get("values", {})
    return {check(name): value for name, value in found.items() if "." in name}


def override(flat: Mapping[str, Any], config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Flat settings with the values of ``HyperParameters.get_config()`` in place of theirs.

    Raises:
        SettingError: a name with a dot is not a setting.
    """
    result = dict(flat)
    for name, value in values(config).items():
        key = name.replace(".", "_", 1)
        result.pop(_EXCLUSIVE.get(key, ""), None)
        result[key] = value
    return result
