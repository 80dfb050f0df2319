"""Public names of a package that are imported when they are used for the first time (PEP 562)."""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from stagecraft.schemas import distribution


def exported(source: ast.Module) -> dict[str, tuple[str, str]]:
    """Module and attribute of each name that a source exports by :func:`exports`."""
    places = dict[str, tuple[str, str]]()
    for node in source.body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                places |= {x.asname or x.name: (line.module or "", x.name) for x in line.names}
    return places


def exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    The names are those that its ``__init__.py`` imports under ``if TYPE_CHECKING``.
    """
    own = vars(sys.modules[package])
    places = exported(ast.parse(pathlib.Path(own["__file__"]).read_text("utf-8")))

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        distribution.check()
        module, attribute = places[name]
        # In the package itself, hasattr would call this function again.
        found = None if module == package else importlib.import_module(module)
        if hasattr(found, attribute):
            own[name] = getattr(found, attribute)
        else:
            own[name] = importlib.import_module(f"{module}.{attribute}")
        return own[name]

    return sorted(places), get, lambda: sorted({*own, *places})
