from typing import Any

import driving
import pytest
import tensorflow as tf
from driving import GRID, MIRRORED, ONE, label
from tensorflow.python.data.ops import multi_device_iterator_ops

CENTRAL: dict[str, Any] = {"strategy": "central_storage", "replicas": 2}


@pytest.mark.parametrize("parallel", [ONE, MIRRORED, CENTRAL, GRID], ids=label)
def test_nothing_is_tuned_behind_an_iterator(parallel, monkeypatch):
    # What tf.data makes an iterator of: on the host, and on each device, where there are several.
    seen: list[tf.data.Dataset] = []
    finalize = tf.data.Dataset._apply_debug_options

    def noted(dataset: tf.data.Dataset) -> tf.data.Dataset:
        seen.append(dataset)
        return finalize(dataset)

    engine = driving.make(parallel)
    monkeypatch.setattr(tf.data.Dataset, "_apply_debug_options", noted)
    batches = driving.feed(engine)
    monkeypatch.undo()
    devices = parallel.get("replicas", 1) if parallel["strategy"] != "grid" else 1
    assert len(seen) == (1 if devices == 1 else 1 + devices)
    assert [dataset.options().autotune.enabled for dataset in seen] == [False] * len(seen)
    engine.train(batches, 2)
    assert engine.step == 2


def test_what_strategies_make_is_as_it_was_afterwards():
    before = multi_device_iterator_ops._create_device_dataset
    driving.feed(driving.make(MIRRORED))
    assert multi_device_iterator_ops._create_device_dataset is before
