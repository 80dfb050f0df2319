"""What settings name: tasks, strategies, optimizers, schedules, augmentations, model families.

A new one is a file in its registry's folder, or an entry point of another package. Imports no
entry before it is named.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.registry import Entry, Registry, UnknownNameError


def _registry(base: str, setting: str, folder: str, group: str) -> Registry:
    here = "stagecraft.trainer_module"
    return Registry(f"{here}.{base}", setting, f"{here}.{folder}", f"stagecraft.{group}")


STRATEGIES = _registry(
    "parallel.strategy:Strategy", "parallel.strategy", "parallel.strategies", "strategies"
)
OPTIMIZERS = _registry(
    "optimization.optimizer:Optimizer", "train.optimizer", "optimization.optimizers", "optimizers"
)
SCHEDULES = _registry(
    "optimization.schedule:Schedule", "train.schedule", "optimization.schedules", "schedules"
)
AUGMENTATIONS = _registry(
    "data.augmentation:Augmentation", "train.augment", "data.augmentations", "augmentations"
)
TASKS = _registry("tasks.task:Task", "task.name", "tasks.kinds", "tasks")
FAMILIES = _registry("models.family:ModelFamily", "train.model", "models.families", "models")

BY_SETTING = {
    registry.setting: registry
    for registry in (TASKS, STRATEGIES, OPTIMIZERS, SCHEDULES, AUGMENTATIONS, FAMILIES)
}


def task(name: str) -> Any:
    """The task of ``task.name``: an entry, or a user's instance as ``package.module:name``.

    Raises:
        SettingError: there is no such task.
    """
    return TASKS.imported(name) if ":" in name else TASKS.get(name)


def model_family(name: str) -> tuple[Any, dict[str, int]]:
    """A model's family, and the sizes in its name; ``(None, {})`` for a user's function.

    Raises:
        SettingError: no family has a model of this name.
    """
    setting, form = FAMILIES.setting, "package.module:function"
    if ":" in name:
        if not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
            raise SettingError(
                setting, name, f"does not have the form {form}", "mymodels.nets:build"
            )
        return None, {}
    families = FAMILIES.entries()
    for family in families:
        sizes = family.sizes(name)
        if sizes is not None:
            return family, sizes
    examples = [example for family in families for example in family.examples]
    near = difflib.get_close_matches(name, examples, n=1, cutoff=0.5)
    use = near[0] if near else f"one of {', '.join(examples)}, or your own as {form}"
    raise UnknownNameError(setting, name, "does not exist", use)


def code(flat: Mapping[str, Any]) -> list[str]:
    """Modules that a training's flat settings name, for a fingerprint of its code.

    A value that is no text is a runtime parameter, which may become any built-in entry.
    """
    modules = {module for entry in _used(flat) for module in entry.code}
    if ":" in str(name := flat.get("task_name", "")):
        modules.add(str(name).partition(":")[0])
    return sorted(modules)


def _used(flat: Mapping[str, Any]) -> Iterator[Entry]:
    for setting, registry in BY_SETTING.items():
        yield from registry.built_in()
        value = flat.get(setting.replace(".", "_"))
        if not isinstance(value, str):
            continue
        if registry is TASKS:
            yield task(value)
        elif registry is FAMILIES:
            family, _ = model_family(value)
            yield from [family] if family else []
        else:
            yield from (registry.get(name) for name in value.split(",") if name != "none")
