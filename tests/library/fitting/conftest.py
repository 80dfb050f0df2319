"""Fixtures of the tests of ``fit`` and its relatives."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import pytest

from stagecraft import process_state


@pytest.fixture
def as_before() -> Iterator[None]:
    """The process is afterwards as before; initial weights are the same in each run."""
    with process_state.restored():
        keras.utils.set_random_seed(1)
        yield
