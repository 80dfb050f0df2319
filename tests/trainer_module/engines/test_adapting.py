"""All workers have the chief's weights of layers that adapt to data."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from stagecraft.trainer_module.parallel.cluster import roles
from stagecraft.trainer_module.settings import ParallelSettings

KERNEL = "sequential/whitening/kernel"


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("multi_worker_mirrored", marks=pytest.mark.slow),
        pytest.param("grid", marks=pytest.mark.full),
    ],
)
def test_all_workers_take_the_chiefs_kernel(strategy, tmp_path):
    program = pathlib.Path(__file__).with_name("adapt.py")
    found = []
    processes = []
    for role in roles(ParallelSettings(strategy=strategy, workers=2)):
        found.append(tmp_path / f"{role.name}.npz")
        env = os.environ | {"TF_CONFIG": role.tf_config}
        words = [sys.executable, program, strategy, found[-1]]
        processes.append(subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True))
    try:
        for process in processes:
            _, log = process.communicate(timeout=240)
            assert process.returncode == 0, log[-4000:]
    finally:
        for process in processes:
            process.kill()
    chief, worker = map(np.load, found)
    assert np.abs(chief["own"] - worker["own"]).max() > 0.01
    for each in (chief, worker):
        np.testing.assert_array_equal(each[KERNEL], chief["own"])
