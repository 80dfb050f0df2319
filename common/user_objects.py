"""Objects of the user's that a setting names as ``package.module:name``.

An object without such a name, of a notebook or a script, gets one of :func:`keep`.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from stagecraft.common.errors import SettingError, UserError, nearest, said

_KEPT = "your_"
_kept: dict[str, Any] = {}


def keep(role: str, digest: str, value: Any) -> str:
    """Gives an object the name ``your_ROLE:DIGEST`` in this process."""
    name = f"{_KEPT}{role}:{digest}"
    _kept[name] = value
    return name


def role(name: str) -> str:
    """The role in a name that :func:`keep` gave."""
    return name.partition(":")[0].removeprefix(_KEPT)


def is_name(value: str) -> bool:
    """Whether it has the form ``package.module:name``."""
    return re.fullmatch(r"\w+(\.\w+)*:\w+", value) is not None


def load(setting: str, dotted: str) -> Any:
    """The object; imports its module.

    Raises:
        SettingError: the import fails, or the module has no such name.
    """
    if dotted in _kept:
        return _kept[dotted]
    module_name, _, name = dotted.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        absent = missing and f"{module_name}.".startswith(f"{missing}.")
        use = "the module's folder on PYTHONPATH" if absent else ""
        raise SettingError(setting, dotted, f"cannot be imported: {said(error)}", use) from error
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        near = nearest(name, public, "")
        use = f"{module_name}:{near}" if near else ""
        raise SettingError(setting, dotted, f"does not exist in {module.__file__}", use)
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
