"""Sets Keras's default float dtype temporarily."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def floatx(dtype: str) -> Iterator[None]:
    """Makes ``dtype`` Keras's default float dtype in the block."""
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)
