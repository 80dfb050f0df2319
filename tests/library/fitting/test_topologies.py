"""``fit`` on several devices and in several processes."""

import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent

ROUNDING = 1e-13
"""Float64 sums of some thousand terms in another order, in steps of 0.01: 2**-53 for each term."""


@pytest.mark.slow
def test_each_topology_trains_as_keras_on_one_device():
    done = subprocess.run(
        [sys.executable, str(HERE / "topologies.py")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    differences = json.loads(done.stdout)
    assert len(differences) == 4
    assert {name: value for name, value in differences.items() if value > ROUNDING} == {}


@pytest.mark.full
@pytest.mark.slow
def test_a_script_trains_in_processes_and_proves_parity(tmp_path):
    done = subprocess.run(
        [sys.executable, str(HERE / "script.py")],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert done.stdout.count("Epoch 2/2") == 3
    assert "equal" in done.stdout.splitlines()[-1]
