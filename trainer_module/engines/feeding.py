"""Iterators over batches that end at once when they are dropped.

A dataset whose parallelism TensorFlow tunes has a thread for that, which sleeps for twice as long
each time, up to a minute (tensorflow/core/framework/model.cc, ``Model::OptimizeLoop``). Who drops
the iterator wakes it and then says that it is cancelled, in this order: a thread that looks in
between goes back to sleep, and dropping the iterator takes as long, with Python's lock held. So
nothing is tuned here: what a dataset leaves to TensorFlow has as many threads as there are
processors, which is what tuning starts from.
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
    """Iterator over so many elements at once as a strategy has replicas here, one for each."""
    untuned = _untuned(dataset)
    with _untuned_on_devices():
        return iter(strategy.distribute_datasets_from_function(lambda _: untuned))


def _untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@contextlib.contextmanager
def _untuned_on_devices() -> Iterator[None]:
    """In it, strategies make iterators whose part on each device is not tuned either.

    Private: the strategies have these datasets, which copy ahead, to themselves, and give them no
    options.
    """
    create = multi_device_iterator_ops._create_device_dataset

    def create_untuned(*args: Any, **more: Any) -> tf.data.Dataset:
        return _untuned(create(*args, **more))

    multi_device_iterator_ops._create_device_dataset = create_untuned
    try:
        yield
    finally:
        multi_device_iterator_ops._create_device_dataset = create
