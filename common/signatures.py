"""Classes of an installed package and their arguments, read from its sources without importing it.

Keras takes seconds to import, and settings are checked before anything needs it.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from stagecraft.common.errors import SettingError, nearest


@functools.cache
def classes(package: str) -> dict[str, str]:
    """Name -> module of the classes that ``package``, such as ``keras.optimizers``, exports."""
    tree = ast.parse((_folder(package) / "__init__.py").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.name[0].isupper()
    }


@functools.cache
def arguments(package: str, name: str) -> dict[str, bool]:
    """The arguments of a class's own ``__init__``, and whether each is required; empty: none."""
    module = classes(package)[name]
    source = _folder(module).with_suffix(".py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    return _arguments(each.args)
    return {}


def _arguments(found: ast.arguments) -> dict[str, bool]:
    positional = [*found.posonlyargs, *found.args][1:]  # without self
    required = len(positional) - len(found.defaults)
    pairs = zip(found.kwonlyargs, found.kw_defaults, strict=True)
    return {each.arg: index < required for index, each in enumerate(positional)} | {
        each.arg: default is None for each, default in pairs
    }


def _folder(package: str) -> pathlib.Path:
    top, *below = package.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {top!r}", name=top)
    return pathlib.Path(spec.submodule_search_locations[0], *below)


def check(
    setting: str, values: Mapping[str, Any], known: Mapping[str, bool], taken: Mapping[str, str]
) -> None:
    """Checks the names of the arguments in a setting such as ``train.optimizer_args``.

    Args:
        known: name -> whether it is required.
        taken: names that other settings stand for -> these settings.

    Raises:
        SettingError: a name is unknown, or belongs to another setting, or is missing.
    """
    free = [name for name in known if name not in taken]
    for name in values:
        if name in taken:
            raise SettingError(setting, name, "is a setting of its own", taken[name])
        if name not in known:
            raise SettingError(setting, name, "is not an argument", nearest(name, free))
    for name in free:
        if known[name] and name not in values:
            raise SettingError(setting, name, "is missing", f"{setting}: {{{name}: …}}")


def refuse_unknown(setting: str, given: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Refuses names that are no arguments of ``owner``: a class, a function or a task.

    Raises:
        SettingError: a name is unknown.
    """
    names = [*known]
    for name in given:
        if name not in names:
            use = nearest(name, names) or "no arguments"
            raise SettingError(setting, name, f"is not an argument of {owner}", use)


def refuse_any(setting: str, values: Mapping[str, Any], owner: str) -> None:
    """Refuses arguments of an entry that takes none; ``owner``: the setting that names it.

    Raises:
        SettingError: there are arguments.
    """
    if values:
        raise SettingError(setting, ", ".join(values), f"is not supported by {owner}")
