from typing import Any

import driving
import numpy as np
import pytest
import tensorflow as tf
from driving import GRID, MIRRORED, ONE, label
from tensorflow.python.data.ops import multi_device_iterator_ops

from stagecraft.trainer_module.parallel.topology import Topology

CENTRAL: dict[str, Any] = {"strategy": "central_storage", "replicas": 2}


@pytest.fixture
def finalized(monkeypatch) -> list[tf.data.Dataset]:
    """What tf.data makes iterators of: on the host, and on each device that has its own."""
    seen: list[tf.data.Dataset] = []
    finalize = tf.data.Dataset._apply_debug_options

    def noted(dataset: tf.data.Dataset) -> tf.data.Dataset:
        seen.append(dataset)
        return finalize(dataset)

    monkeypatch.setattr(tf.data.Dataset, "_apply_debug_options", noted)
    return seen


@pytest.fixture
def as_on_gpus(monkeypatch):
    """Batches are copied ahead to the devices."""
    monkeypatch.setattr(Topology, "on_cpus", False)


@pytest.mark.parametrize("parallel", [ONE, MIRRORED, CENTRAL, GRID], ids=label)
def test_cpus_share_one_iterator_that_nothing_tunes(parallel, finalized):
    engine = driving.make(parallel)
    finalized.clear()
    batches = driving.feed(engine)
    assert [dataset.options().autotune.enabled for dataset in finalized] == [False]
    engine.train(batches, 2)
    assert engine.step == 2


@pytest.mark.parametrize("parallel", [MIRRORED, CENTRAL], ids=label)
def test_other_devices_have_iterators_that_nothing_tunes(parallel, finalized, as_on_gpus):
    engine = driving.make(parallel)
    finalized.clear()
    batches = driving.feed(engine)
    tuned = [dataset.options().autotune.enabled for dataset in finalized]
    assert tuned == [False] * (1 + parallel["replicas"])
    engine.train(batches, 2)
    assert engine.step == 2


@pytest.mark.parametrize("parallel", [MIRRORED, CENTRAL], ids=label)
def test_replicas_have_the_same_parts_with_and_without_copies(parallel, monkeypatch):
    states = []
    for on_cpus in (True, False):
        monkeypatch.setattr(Topology, "on_cpus", on_cpus)
        engine = driving.make(parallel)
        engine.train(driving.feed(engine), 2)
        states.append(engine.state())
    shared, copied = states
    assert shared.keys() == copied.keys()
    for name, value in shared.items():
        np.testing.assert_array_equal(value, copied[name], name)


def test_what_strategies_make_is_as_it_was_afterwards(as_on_gpus):
    before = multi_device_iterator_ops._create_device_dataset
    driving.feed(driving.make(MIRRORED))
    assert multi_device_iterator_ops._create_device_dataset is before
