"""Each task learns what Keras's own training step learns, on all topologies of a process."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from task_cases import CASES

PROGRAM = pathlib.Path(__file__).with_name("trainings.py")
OPTIMIZERS = ("adam", "adamw", "sgd", "lion", "rmsprop")
TOPOLOGIES = ("mirrored-2", "stages-3", "grid-2x2")
SLOW = ("language_model",)


def _assert_equal(cases: tuple[str, ...], optimizers: tuple[str, ...], *topologies: str) -> None:
    ran = subprocess.run(
        [sys.executable, PROGRAM, *map(",".join, (cases, optimizers, topologies))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    by_row = {name: found.pop(name) for name in list(found) if name.endswith(", rows")}
    names = {f"{case} {each}" for case in cases for each in (*optimizers, *topologies)}
    assert found.keys() == names
    # Values near 1, five steps of sums of at most 1e4 terms in float64: 5 * 1e4 * 2 ** -53 = 6e-12.
    assert {name: value for name, value in found.items() if not value <= 1e-11} == {}
    # Keras squares an embedding's gradients of the same id one by one.
    assert {name: value for name, value in by_row.items() if not value > 1e-3} == {}


@pytest.mark.slow
def test_one_device_is_keras_and_topologies_are_one_device():
    _assert_equal(SLOW, ("adamw",), "mirrored-2", "stages-3")


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
def test_each_task_with_each_optimizer(case):
    _assert_equal((case,), OPTIMIZERS, *TOPOLOGIES)
