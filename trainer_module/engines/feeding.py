"""Iterators over batches that end at once when they are deleted.

If TensorFlow tunes a dataset's parallelism, a thread sleeps between adjustments, up to a minute
(tensorflow/core/framework/model.cc, ``Model::OptimizeLoop``), and the deletion of the iterator may
wait for it, holding Python's lock. These iterators turn tuning off: parallelism that a dataset
leaves to TensorFlow is the number of processors, where tuning starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops


def on_host(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Iterator over the elements of a dataset."""
    return iter(_untuned(dataset))


def on_replicas(strategy: tf.distribute.Strategy, dataset: tf.data.Dataset) -> Iterator[Any]:
    """Iterator over groups of elements, one for each replica of a strategy in this process."""
    untuned = _untuned(dataset)
    with _untuned_on_devices():
        return iter(strategy.distribute_datasets_from_function(lambda _: untuned))


def _untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@contextlib.contextmanager
def _untuned_on_devices() -> Iterator[None]:
    """Turns tuning off in the datasets that strategies make on each device, to copy ahead."""
    create = multi_device_iterator_ops._create_device_dataset

    def create_untuned(*args: Any, **more: Any) -> tf.data.Dataset:
        return _untuned(create(*args, **more))

    multi_device_iterator_ops._create_device_dataset = create_untuned
    try:
        yield
    finally:
        multi_device_iterator_ops._create_device_dataset = create
