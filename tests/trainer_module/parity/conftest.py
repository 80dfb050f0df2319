"""Fixtures: processes that compute nothing."""

import json
import pathlib
from collections.abc import Callable

import pytest

from stagecraft.trainer_module.parity import check


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``fake(mirrored="die")``: what the processes of a strategy do, in place of computing."""
    script = pathlib.Path(__file__).with_name("fake_worker.py")
    monkeypatch.setattr(check, "_WORKER", (str(script),))

    def behave(**strategies: str) -> None:
        monkeypatch.setenv("FAKE", json.dumps(strategies))

    behave()
    return behave
