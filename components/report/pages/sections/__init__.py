"""Sections of the report that a task names: one file each, with ``TITLE`` and ``show(report)``.

``show`` returns the :class:`~stagecraft.components.report.pages.sections.content.Content`, or None
where the report lacks what the section needs. A section of your own is a module that the task names
by its dotted path.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

_ALWAYS = ("slices", "earlier_models", "samples")
_NO_SECTION = "content"


def of(names: Iterable[str]) -> dict[str, Any]:
    """The modules of a task's sections by id, in their order; then those of every task."""
    built_in = {each.name for each in pkgutil.iter_modules(__path__)} - {_NO_SECTION}
    found = {}
    for name in dict.fromkeys((*names, *_ALWAYS)):
        if name in built_in:
            found[name] = importlib.import_module(f"{__name__}.{name}")
        elif "." in name:
            found[name.replace(".", "-")] = importlib.import_module(name)
    return found
