"""``import stagecraft`` costs nothing, and has the names that it lists."""

import subprocess
import sys

import pytest

import stagecraft as sc


def test_it_imports_nothing_large():
    script = """
import sys
import stagecraft
large = {"tensorflow", "keras", "pydantic", "numpy", "tfx"} & sys.modules.keys()
print("imported", *large)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["imported"]


def test_it_lists_its_names():
    assert {"fit", "Parallel", "parallelize"} < {*sc.__all__} < {*dir(sc)}
    for name in sc.__all__:
        assert getattr(sc, name) is not None
    with pytest.raises(AttributeError):
        sc.fitt  # noqa: B018
