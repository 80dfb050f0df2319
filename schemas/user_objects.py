"""Objects of the user's that a setting names as ``package.module:name``."""

from __future__ import annotations

import difflib
import importlib
import re
from types import ModuleType
from typing import Any

from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.schemas.foreign_errors import said


def is_name(value: str) -> bool:
    """Whether it has the form ``package.module:name``."""
    return re.fullmatch(r"\w+(\.\w+)*:\w+", value) is not None


def module_of(setting: str, dotted: str) -> ModuleType:
    """Imports the module of ``package.module:name``.

    Raises:
        UserError: the import fails.
    """
    module_name = dotted.partition(":")[0]
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        absent = missing and f"{module_name}.".startswith(f"{missing}.")
        advice = "; put the folder that holds it on PYTHONPATH" if absent else ""
        raise UserError(
            f"{setting}: {dotted}: cannot import {module_name!r}: {said(error)}{advice}",
            setting=setting,
            value=dotted,
        ) from error


def load(setting: str, dotted: str) -> Any:
    """Imports the module and returns the object.

    Raises:
        UserError: the import fails, or the module has no such name.
    """
    module_name, _, name = dotted.partition(":")
    module = module_of(setting, dotted)
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        near = difflib.get_close_matches(name, public, n=1)
        raise SettingError(
            setting,
            dotted,
            f"does not exist in {module.__file__}",
            f"{module_name}:{near[0]}" if near else "",
        )
    return getattr(module, name)


def made(setting: str, dotted: str, kind: type) -> Any:
    """The named object if it is a ``kind``; otherwise what it returns when called.

    Raises:
        UserError: the call fails, or gives something else.
    """
    found = load(setting, dotted)
    if not isinstance(found, kind) and callable(found):
        try:
            found = found()
        except Exception as error:  # whatever the user's function raises
            raise UserError(
                f"{setting}: {dotted}() failed: {said(error)}", setting=setting, value=dotted
            ) from error
    if not isinstance(found, kind):
        raise SettingError(
            setting,
            dotted,
            f"is of type {type(found).__name__}",
            f"a {kind.__module__.partition('.')[0]} {kind.__name__}, or a function without "
            "arguments that returns one",
        )
    return found
