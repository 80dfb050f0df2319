from __future__ import annotations

import importlib
import sys

import pytest
from processes import ran

from stagecraft.schemas.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_new_module(old: str) -> None:
    sys.modules.pop(old, None)
    importlib.import_module(old.rpartition(".")[0])
    with pytest.warns(DeprecationWarning, match=f"{old} is deprecated"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(f"stagecraft.{MOVED[old]}")
    assert module.__name__ == module.__spec__.name == f"stagecraft.{MOVED[old]}"


def test_from_import_in_a_new_process() -> None:
    code = "from stagecraft.trainer_module import record; print(record.__name__)"
    done = ran(sys.executable, "-c", code)
    assert done.stdout.split() == ["stagecraft.trainer_module.training.record"]
