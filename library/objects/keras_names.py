"""Names of losses and metrics, and what Keras means by ``accuracy`` and ``crossentropy``."""

from __future__ import annotations

import difflib
import types
from typing import Any

_SHORT = ("mse", "mae", "mape", "msle")
"""Names of losses and metrics that Keras knows, but does not export in each version."""


def kind_of(target: Any, value: Any) -> str:
    """Keras's choice between ``binary``, ``categorical`` and ``sparse_categorical``, by shapes."""
    if target is None or value.shape[-1] == 1:
        return "binary"
    is_sparse = target.shape.rank < value.shape.rank or target.shape[-1] == 1
    return "sparse_categorical" if is_sparse else "categorical"


def near(module: types.ModuleType, given: Any, *more: str) -> str:
    """The public name of a Keras module that is like an unknown one; "": there is none.

    Args:
        more: other names.
    """
    if not isinstance(given, str):
        return ""
    public = (name for name in vars(module) if not name.startswith("_"))
    known = {name.lower(): name for name in (*public, *_SHORT, *more)}
    found = difflib.get_close_matches(given.lower(), known, n=1)
    return known[found[0]] if found else ""


def name_of(given: Any) -> str:
    """The name of a loss or metric as ``compile`` takes it: name, object or function."""
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or type(given).__name__)
