"""Settings and machine give devices, or a refusal that names the field and a value."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import topology
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.topology import Topology


def _cpus() -> int:
    import tensorflow as tf

    return len(tf.config.list_logical_devices("CPU"))  # this starts TensorFlow


def test_one_device() -> None:
    found = topology.resolve(ParallelSettings())
    assert found.strategy == "one_device"
    assert found.replicas == 1


def test_more_replicas_than_devices() -> None:
    there = _cpus()
    parallel = ParallelSettings(strategy="mirrored", replicas=there + 1)
    with pytest.raises(UserError) as caught:
        topology.resolve(parallel)
    message = str(caught.value)
    assert f"use parallel.replicas: {there}" in message
    assert f"parallel.virtual_devices: {there + 1}" in message


def test_virtual_devices_after_tensorflow_has_started() -> None:
    there = _cpus()
    topology.configure_devices(ParallelSettings(virtual_devices=there))  # enough are there
    with pytest.raises(UserError, match=f"virtual_devices: {there + 1}.*already started.*{there}"):
        topology.configure_devices(ParallelSettings(virtual_devices=there + 1))


def test_every_replica_has_a_part_of_the_batch() -> None:
    three = Topology(strategy="mirrored", devices=("CPU:0", "CPU:1", "CPU:2"))
    assert [three.fitting_batch(size) for size in (1, 3, 4, 500)] == [3, 3, 6, 501]


def test_importing_it_starts_nothing() -> None:
    code = "import sys, stagecraft.trainer_module.topology; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_virtual_devices() -> None:
    code = """
from stagecraft.trainer_module import topology
from stagecraft.trainer_module.settings import ParallelSettings
one = ParallelSettings(virtual_devices=3)
two = ParallelSettings(strategy="mirrored", replicas=2, virtual_devices=3)
topology.configure_devices(one)
assert topology.resolve(one).devices == ("CPU:0",)
assert topology.resolve(two).devices == ("CPU:0", "CPU:1")
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
