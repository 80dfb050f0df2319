"""Each task learns what Keras's own training step learns."""

import json
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("trainings.py")


@pytest.mark.slow
def test_one_device_and_stages_are_keras():
    ran = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    assert len(found) == 10
    # Values near 1, five steps of sums of at most 1e4 terms in float64: 5 * 1e4 * 2 ** -53 = 6e-12.
    assert {name: value for name, value in found.items() if value > 1e-11} == {}
