"""Keras's own tests of ``fit`` and callbacks, with each model on a topology.

STAGECRAFT_KERAS_TESTS names a checkout of Keras, of the installed version.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from reading import ROOT

PAGE = ROOT / "docs" / "reference" / "keras-tests.md"
FOLDER = os.environ.get("STAGECRAFT_KERAS_TESTS", "")
FILES = ("trainers/trainer_test.py", "callbacks")
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "mirrored": {"strategy": "mirrored", "replicas": 2},
    "grid": {"strategy": "grid", "stages": 2, "microbatches": 2},
}


def known() -> set[str]:
    """The tests of the page's table."""
    return set(re.findall(r"^\| `(test_\w+)` \|", PAGE.read_text(), re.MULTILINE))


def failures(settings: dict[str, Any]) -> set[str]:
    """Names of the tests that fail."""
    source = pathlib.Path(FOLDER) / "keras" / "src"
    paths = [str(source / file) for file in FILES]
    words = ["--noconftest", "-c", "/dev/null", "--rootdir", FOLDER, "-p", "no:cacheprovider"]
    monitor = source / "callbacks" / "remote_monitor_test.py"  # needs a library
    chosen = ["-k", "not multiprocessing", f"--ignore={monitor}", "-q", "--tb=no"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "keras_plugin", *words, *chosen, *paths],
        env=os.environ
        | {
            "STAGECRAFT_TOPOLOGY": json.dumps(settings),
            "PYTHONPATH": str(pathlib.Path(__file__).parent),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    return set(re.findall(r"^FAILED \S+::(test_\w+)", done.stdout, re.MULTILINE))


def test_the_page_names_tests():
    assert known()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not FOLDER, reason="STAGECRAFT_KERAS_TESTS names no checkout of Keras")
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_only_what_the_page_says_fails(name):
    assert failures(TOPOLOGIES[name]) - failures({}) == known()
