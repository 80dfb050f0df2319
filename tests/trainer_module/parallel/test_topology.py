import json
import subprocess
import sys

import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.strategies import tpu
from stagecraft.trainer_module.parallel.topology import Topology, configure_devices
from stagecraft.trainer_module.settings import ParallelSettings


def _cpus() -> int:
    import tensorflow as tf

    return len(tf.config.list_logical_devices("CPU"))  # this starts TensorFlow


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with one CPU and three GPUs; the GPUs that were left visible."""
    import tensorflow as tf

    there, shown = {"CPU": ["cpu"], "GPU": ["gpu0", "gpu1", "gpu2"]}, ["untouched"]

    def show(devices: list[str], kind: str) -> None:
        assert kind == "GPU"
        shown[:] = devices

    monkeypatch.setattr(topology, "configure_devices", lambda parallel: None)
    monkeypatch.setattr(topology, "_devices", lambda kind: there[kind])
    monkeypatch.setattr(topology, "_resolved", [])
    monkeypatch.setattr(tf.config, "set_visible_devices", show)
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return shown


def test_one_device():
    found = topology.resolve(ParallelSettings())
    assert found.strategy == "one_device"
    assert found.replicas == found.global_replicas == found.stages == 1
    assert found.device(0, 0) == found.devices[0]


def test_replica_by_replica_its_stages_in_order():
    names = tuple(f"CPU:{index}" for index in range(6))
    grid = Topology(strategy="grid", devices=names, stages=3)
    assert grid.replicas == 2
    assert [grid.device(0, stage) for stage in range(3)] == ["CPU:0", "CPU:1", "CPU:2"]
    assert [grid.device(1, stage) for stage in range(3)] == ["CPU:3", "CPU:4", "CPU:5"]


def test_every_replica_has_a_part_of_the_batch():
    three = Topology(strategy="mirrored", devices=("CPU:0", "CPU:1", "CPU:2"))
    assert [three.fitting_batch(size) for size in (1, 3, 4, 500)] == [3, 3, 6, 501]
    workers = Topology(
        strategy="multi_worker_mirrored", devices=("GPU:0", "GPU:1"), workers=3, worker=1
    )
    assert workers.global_replicas == 6
    assert workers.fitting_batch(500) == 504


def test_more_replicas_than_devices():
    there = _cpus()
    parallel = ParallelSettings(strategy="mirrored", replicas=there + 1)
    with pytest.raises(UserError) as caught:
        topology.resolve(parallel)
    message = str(caught.value)
    assert f"use parallel.replicas: {there}" in message
    assert f"parallel.virtual_devices: {there + 1}" in message


def test_a_larger_grid_than_devices(gpus):
    parallel = ParallelSettings(strategy="grid", replicas=2, stages=2)
    with pytest.raises(UserError) as caught:
        topology.resolve(parallel)
    message = str(caught.value)
    assert "parallel.replicas: 2 × parallel.stages: 2 needs 4 devices" in message
    assert "use parallel.replicas: 1, or parallel.virtual_devices: 4" in message
    assert topology.resolve(parallel.model_copy(update={"replicas": 1})).on_gpus
    with pytest.raises(UserError):
        topology.resolve(ParallelSettings(strategy="grid", stages=4))


def test_devices_that_are_named(gpus):
    parallel = ParallelSettings(strategy="grid", stages=2, devices="GPU:2,GPU:0")
    assert topology.resolve(parallel).devices == ("GPU:2", "GPU:0")
    assert gpus == ["untouched"]
    with pytest.raises(UserError, match="GPU:3"):
        topology.resolve(ParallelSettings(devices="GPU:3"))


@pytest.mark.parametrize(
    ("asked", "devices", "shown"),
    [
        ({"replicas": 2}, ("GPU:0", "GPU:1"), ["gpu0", "gpu1"]),
        ({"replicas": 2, "devices": "GPU:2,GPU:1"}, ("GPU:0", "GPU:1"), ["gpu1", "gpu2"]),
        ({"virtual_devices": 1}, ("CPU:0",), []),
        ({"devices": "CPU:0"}, ("CPU:0",), []),
    ],
)
def test_a_worker_sees_no_gpus_but_its_own(gpus, asked, devices, shown):
    parallel = ParallelSettings(strategy="multi_worker_mirrored", **asked)
    assert topology.resolve(parallel).devices == devices
    assert gpus == shown


def test_replicas_of_a_worker_without_gpus(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    parallel = ParallelSettings(strategy="multi_worker_mirrored", replicas=2)
    with pytest.raises(UserError) as caught:
        topology.resolve(parallel)
    assert caught.value.setting == "parallel.replicas"


def test_nccl_without_gpus():
    parallel = ParallelSettings(strategy="mirrored", all_reduce="nccl")
    with pytest.raises(UserError) as caught:
        topology.resolve(parallel)
    assert caught.value.setting == "parallel.all_reduce"
    topology.resolve(ParallelSettings(strategy="mirrored"))


def test_nccl_with_gpus(gpus):
    parallel = ParallelSettings(strategy="mirrored", replicas=3, all_reduce="nccl")
    assert topology.resolve(parallel).devices == ("GPU:0", "GPU:1", "GPU:2")


def _be_worker(monkeypatch: pytest.MonkeyPatch, index: int, **jobs: list[str]) -> None:
    config = {"cluster": jobs, "task": {"type": "worker", "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_workers_come_from_tf_config(gpus, monkeypatch):
    _be_worker(monkeypatch, 1, chief=["a:1"], worker=["b:1", "c:1"])
    found = topology.resolve(ParallelSettings(strategy="multi_worker_mirrored", workers=3))
    assert (found.workers, found.worker, found.global_replicas) == (3, 2, 3)
    assert topology.resolve(ParallelSettings(strategy="mirrored", replicas=2)).workers == 1


def test_workers_of_a_grid_keep_their_gpus(gpus, monkeypatch):
    _be_worker(monkeypatch, 1, worker=["a:1", "b:1"])
    parallel = ParallelSettings(strategy="grid", workers=2, stages=2, devices="GPU:2,GPU:0")
    found = topology.resolve(parallel)
    assert found.devices == ("GPU:2", "GPU:0")
    assert (found.rows, found.global_replicas) == ((1, 2), 2)
    assert gpus == ["untouched"]


def test_a_second_topology_whose_collectives_clash(gpus, monkeypatch):
    one = ParallelSettings(strategy="multi_worker_mirrored")
    grid = ParallelSettings(strategy="grid", replicas=2)
    topology.resolve(grid)
    topology.resolve(one)
    topology.resolve(one)
    topology.resolve(ParallelSettings(strategy="grid", replicas=3))
    with pytest.raises(UserError) as caught:
        topology.resolve(ParallelSettings(strategy="multi_worker_mirrored", replicas=2))
    assert caught.value.setting == "parallel.strategy"

    _be_worker(monkeypatch, 0, worker=["a:1", "b:1"])
    two = ParallelSettings(strategy="multi_worker_mirrored", workers=2)
    monkeypatch.setattr(topology, "_resolved", [])
    topology.resolve(two)
    topology.resolve(grid)
    monkeypatch.setattr(topology, "_resolved", [])
    topology.resolve(grid)
    with pytest.raises(UserError) as caught:
        topology.resolve(two)
    assert caught.value.setting == "parallel.strategy"
    of_two = ParallelSettings(strategy="grid", workers=2)
    with pytest.raises(UserError) as caught:
        topology.resolve(of_two)
    assert caught.value.setting == "parallel.strategy"
    monkeypatch.setattr(topology, "_resolved", [])
    topology.resolve(of_two)
    topology.resolve(of_two)  # as for another precision
    topology.resolve(grid)


def test_no_tpu(monkeypatch):
    import tensorflow as tf

    def none() -> None:  # as TensorFlow does, without asking Google Cloud first
        raise ValueError("Please provide a TPU Name to connect to.")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", none)
    with pytest.raises(UserError) as caught:
        topology.resolve(ParallelSettings(strategy="tpu"))
    assert caught.value.setting == "parallel.strategy"


def test_replicas_are_the_tpus_cores(monkeypatch):
    monkeypatch.setattr(tpu, "_cores", lambda: 8)
    with pytest.raises(UserError, match="cores"):
        topology.resolve(ParallelSettings(strategy="tpu"))
    found = topology.resolve(ParallelSettings(strategy="tpu", replicas=8))
    assert found.replicas == 8
    assert found.device(7, 0) == "TPU:7"


def test_virtual_devices_after_tensorflow_has_started():
    there = _cpus()
    configure_devices(ParallelSettings(virtual_devices=there))  # enough are there
    with pytest.raises(UserError) as caught:
        configure_devices(ParallelSettings(virtual_devices=there + 1))
    assert caught.value.setting == "parallel.virtual_devices"


VIRTUAL_DEVICES = """
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.settings import ParallelSettings
one = ParallelSettings(virtual_devices=3)
two = ParallelSettings(strategy="mirrored", replicas=2, virtual_devices=2)
grid = ParallelSettings(strategy="grid", stages=3, devices="CPU:2,CPU:0,CPU:1", virtual_devices=3)
configure_devices(one)
assert topology.resolve(one).devices == ("CPU:0",)
assert topology.resolve(two).devices == ("CPU:0", "CPU:1")
assert topology.resolve(grid).devices == ("CPU:2", "CPU:0", "CPU:1")
# Nothing of this has started TensorFlow, so a strategy can still set up its collectives.
configure_devices(ParallelSettings(virtual_devices=4))
import tensorflow as tf
assert len(tf.config.list_logical_devices("CPU")) == 4
"""


@pytest.mark.slow
def test_virtual_devices():
    run = subprocess.run([sys.executable, "-c", VIRTUAL_DEVICES], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]


def test_workers_that_connect_too_late():
    """As TensorFlow says it where a module has made an optimizer of Keras."""
    with pytest.raises(UserError) as caught, topology.connecting():
        raise RuntimeError("Collective ops must be configured at program startup")
    assert caught.value.setting == "parallel.workers"
    with pytest.raises(RuntimeError, match="other"), topology.connecting():
        raise RuntimeError("other")
