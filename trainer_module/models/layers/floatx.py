"""Keras's default dtype of floats, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def floatx(dtype: str) -> Iterator[None]:
    """Keras makes and draws floats of ``dtype`` in it, where nothing else is said.

    Args:
        dtype: ``float32`` or ``float64``.
    """
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)
