"""Objects in other processes: also of a module that no import finds."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pytest

from stagecraft import named_objects

FAR = """
import pathlib, sys
from stagecraft import named_objects
from stagecraft.common import user_objects
named_objects.unpack(pathlib.Path(sys.argv[1]).read_bytes())
print(user_objects.load("train.model", sys.argv[2])(20))
"""


@pytest.fixture
def hidden(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module from a file, as TFX and pytest import them."""
    file = tmp_path / "somewhere" / "hidden.py"
    file.parent.mkdir()
    file.write_text("def helper(x):\n    return x + 1\n\ndef main(x):\n    return helper(x) * 2\n")
    spec = importlib.util.spec_from_file_location("hidden_module", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "hidden_module", module)
    spec.loader.exec_module(module)
    return "hidden_module"


def test_a_function_of_a_hidden_module_arrives(hidden, tmp_path):
    name = named_objects.put("model", sys.modules[hidden].main)
    file = tmp_path / "packed"
    file.write_bytes(named_objects.pack([name]))
    words = [sys.executable, "-c", FAR, str(file), name]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "42\n"


def test_what_cannot_be_sent_is_named():
    name = named_objects.put("loss", (each for each in ()))
    with pytest.raises(named_objects.UnpicklableError) as error:
        named_objects.pack([name])
    assert error.value.setting == "loss"
