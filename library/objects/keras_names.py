"""Names of losses and metrics, and what Keras means by ``accuracy`` and ``crossentropy``."""

from __future__ import annotations

from typing import Any


def kind_of(target: Any, value: Any) -> str:
    """Keras's choice between ``binary``, ``categorical`` and ``sparse_categorical``, by shapes."""
    if target is None or value.shape[-1] == 1:
        return "binary"
    is_sparse = target.shape.rank < value.shape.rank or target.shape[-1] == 1
    return "sparse_categorical" if is_sparse else "categorical"


def name_of(given: Any) -> str:
    """The name of a loss or metric as ``compile`` takes it: name, object or function."""
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or type(given).__name__)
