"""Objects that settings name: tasks, strategies, optimizers, losses, augmentations, models, ….

A new one is a file in its registry's folder, or an entry point of another package. Imports no
entry before it is named.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stagecraft.common import signatures
from stagecraft.common.errors import SettingError, UserError, said
from stagecraft.common.registry import Entry, Registry, UnknownNameError
from stagecraft.common.settings import names


def _registry(base: str, setting: str, folder: str, group: str, more: str = "") -> Registry:
    here = "stagecraft.trainer_module"
    more = more and f"{here}.{more}"
    return Registry(f"{here}.{base}", setting, f"{here}.{folder}", f"stagecraft.{group}", more)


STRATEGIES = _registry(
    "parallel.strategy:Strategy", "parallel.strategy", "parallel.strategies", "strategies"
)
OPTIMIZERS = _registry(
    "optimization.optimizer:Optimizer",
    "train.optimizer",
    "optimization.optimizers",
    "optimizers",
    more="optimization.keras_optimizers",
)
SCHEDULES = _registry(
    "optimization.schedule:RateSchedule",
    "train.schedule",
    "optimization.schedules",
    "schedules",
    more="optimization.keras_schedules",
)
LOSSES = _registry(
    "optimization.loss:Loss",
    "train.loss",
    "optimization.losses",
    "losses",
    more="optimization.keras_losses",
)
AUGMENTATIONS = _registry(
    "data.augmentation:Augmentation", "train.augment", "data.augmentations", "augmentations"
)
TASKS = _registry("data.tasks.task:Task", "task.name", "data.tasks.kinds", "tasks")
FAMILIES = _registry("models.family:ModelFamily", "train.model", "models.families", "models")
SHARD_RULES = _registry(
    "tensor_parallel.rule:ShardRule",
    "parallel.shards",
    "tensor_parallel.rules",
    "shard_rules",
)
"""Rules are found by the type of a layer, and no setting names one."""

BY_SETTING = {
    registry.setting: registry
    for registry in (TASKS, STRATEGIES, OPTIMIZERS, SCHEDULES, LOSSES, AUGMENTATIONS, FAMILIES)
}


def task(name: str, arguments: Mapping[str, Any] | str | None = None) -> Any:
    """The task of ``task.name``: an entry, or a user's instance as ``package.module:name``.

    Args:
        name: of the task.
        arguments: ``task.args``, or its JSON, for a new instance of the same class.

    Raises:
        SettingError: there is no such task, or its class does not take the arguments.
    """
    found = TASKS.imported(name) if ":" in name else TASKS.get(name)
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return _configured(found, name, given) if given else found


def _configured(task: Any, name: str, arguments: Mapping[str, Any]) -> Any:
    kind = type(task)
    signatures.refuse_unknown("task.args", arguments, inspect.signature(kind).parameters, name)
    try:
        return kind(**arguments)
    except UserError:
        raise
    except Exception as error:  # whatever the class raises
        raise SettingError(
            "task.args", dict(arguments), f"do not fit {name}: {said(error)}"
        ) from error


def augmentations(given: Sequence[str]) -> tuple[str, ...]:
    """Names of ``train.augment`` in the order of application.

    Raises:
        SettingError: there is no such augmentation, or two exclude each other.
    """
    entries = {AUGMENTATIONS.get(name) for name in given}
    found = [each.name for each in sorted(entries, key=lambda entry: (entry.order, entry.name))]
    mixing = sorted(entry.name for entry in entries if entry.mixes)
    if len(mixing) > 1:
        problem = "exclude each other: both mix two images"
        raise SettingError(AUGMENTATIONS.setting, ",".join(mixing), problem, mixing[0])
    for entry in entries:
        if undone := [name for name in entry.excludes if name in found]:
            pair = ",".join([entry.name, *undone])
            problem = "exclude each other: one undoes the other"
            raise SettingError(AUGMENTATIONS.setting, pair, problem, entry.name)
    return tuple(found)


def losses(value: Any) -> dict[str, str]:
    """Names of ``train.loss`` by output of the model; one for all outputs has the key ``""``.

    Args:
        value: a name, a mapping, or its JSON.

    Raises:
        SettingError: it is neither, or there is no such loss.
    """
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    named = dict(value) if isinstance(value, Mapping) else {"": value}
    use = "the name of a loss, or a mapping from outputs to names"
    if not named or not all(isinstance(output, str) for output in named):
        raise SettingError(LOSSES.setting, value, "is not a mapping from outputs", use)
    for output, name in named.items():
        if not isinstance(name, str) or (output and name == "task"):
            raise SettingError(LOSSES.setting, name, "is not the name of a loss", use)
        named[output] = LOSSES.get(name).name
    return named


def check_family(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuses a model whose family is not for the task that gives these arguments.

    Raises:
        SettingError: as said.
    """
    family, sizes = model_family(name)
    if family is None or family.takes(arguments, sizes):
        return
    fitting = [
        example
        for each in FAMILIES.entries()
        for example in each.examples
        if each.takes(arguments, each.sizes(example))
    ]
    use = f"one of {', '.join(fitting)}, or your own as package.module:function"
    given = ", ".join(arguments)
    problem = f"does not accept the arguments that the task passes to models ({given})"
    raise SettingError(FAMILIES.setting, name, problem, use)


def model_family(name: str) -> tuple[Any, dict[str, Any]]:
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
    callbacks = flat.get("train_callbacks")
    return sorted(
        modules | {*(names("train.callbacks", callbacks) if isinstance(callbacks, str) else ())}
    )


def _used(flat: Mapping[str, Any]) -> Iterator[Entry]:
    if flat.get("parallel_shards", 1) != 1:
        yield from SHARD_RULES.entries()
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
        elif registry is LOSSES:
            yield from (registry.get(name) for name in losses(value).values())
        else:
            yield from (registry.get(each) for each in names(setting, value) if each != "none")
