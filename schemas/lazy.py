"""Public names of a package that are imported when they are used for the first time (PEP 562)."""

from __future__ import annotations

import ast
import pathlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

from stagecraft.schemas import distribution


def exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    The names are those that its ``__init__.py`` imports under ``if TYPE_CHECKING``.
    """
    own = vars(sys.modules[package])
    places = dict[str, str]()
    for node in ast.walk(ast.parse(pathlib.Path(own["__file__"]).read_text("utf-8"))):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                dot = "." if line.module == package else ":"  # of a module, or in one
                names = line.names
                places |= {x.asname or x.name: f"{line.module}{dot}{x.name}" for x in names}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        distribution.check()
        own[name] = pkgutil.resolve_name(places[name])
        return own[name]

    return sorted(places), get, lambda: sorted({*own, *places})
