"""``import stagecraft`` costs nothing, and has the names that it lists."""

import subprocess
import sys

import pytest

import stagecraft as sc

SECONDS = 0.3


def test_it_imports_nothing_large():
    script = """
import sys, time
start = time.perf_counter()
import stagecraft
seconds = time.perf_counter() - start
large = {"tensorflow", "keras", "pydantic", "numpy", "tfx"} & sys.modules.keys()
print(seconds, *large)
"""
    fastest, large = 1.0, [""]
    for _ in range(3):  # another process may have the cores
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        seconds, *large = done.stdout.split()
        fastest = min(fastest, float(seconds))
    assert large == []
    assert fastest < SECONDS


def test_it_lists_its_names():
    assert {"fit", "Parallel", "parallelize"} < {*sc.__all__} < {*dir(sc)}
    for name in sc.__all__:
        assert getattr(sc, name) is not None
    with pytest.raises(AttributeError):
        sc.fitt  # noqa: B018
