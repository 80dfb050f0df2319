"""Emulated devices and links: an op has its device or its link alone for a stated time."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.engines.collectives import Group
from stagecraft.trainer_module.planning.collective_costs import Link, all_reduce_seconds
from stagecraft.trainer_module.tensor_parallel.rules.dense import DenseRule
from stagecraft.trainer_module.tensor_parallel.split import Way

BACKWARD = 2.0
"""Time of the backward pass by that of the forward pass."""

_DEVICE = re.compile(r"device:(\w+:\d+)$")
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def device_of(tensor: tf.Tensor) -> str:
    """The device of a tensor, such as ``CPU:1``; empty: not known."""
    match = _DEVICE.search(tensor.device or "")
    return match[1] if match else ""


def here() -> str:
    """The device on which the next op will run."""
    return device_of(tf.zeros(()))


def occupied(
    values: tf.Tensor, resources: Sequence[str], seconds: Callable[[np.ndarray], float]
) -> tf.Tensor:
    """The values, after all resources were this op's alone for a time.

    Args:
        values: on any device.
        resources: names of devices, or of ends of links. Ops that take two of them name these in
            one order, so that none waits for ever.
        seconds: of the values.
    """
    locks = [_locks[name] for name in resources]

    def wait(array: np.ndarray) -> np.ndarray:
        with contextlib.ExitStack() as held:
            for lock in locks:
                held.enter_context(lock)
            time.sleep(seconds(array))
        return array

    # Automatic control dependencies would order stateful ops, and prevent overlap.
    result = tf.numpy_function(wait, [values], values.dtype, stateful=False)
    result.set_shape(values.shape)
    return result


class Busy(keras.layers.Dense):
    """A Dense whose passes take a stated time instead of their own, which is much shorter."""

    def __init__(self, units: int, seconds: float, launch: float, **others: Any):
        """Sets the time of the forward pass: ``launch + seconds * examples``."""
        super().__init__(units, **others)
        self.seconds, self.launch = seconds, launch

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Does what a Dense does."""
        device = here()

        @tf.custom_gradient
        def passes(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def back(upstream: tf.Tensor) -> tf.Tensor:
                return occupied(upstream, [device], lambda rows: BACKWARD * self._time(rows))

            return occupied(values, [device], self._time), back

        # In this order, so that the first layer of a model also has a backward pass.
        return passes(super().call(inputs))

    def _time(self, rows: np.ndarray) -> float:
        return self.launch + self.seconds * len(rows)

    def get_config(self) -> dict[str, Any]:
        """The configuration of a Dense, and the times."""
        return {**super().get_config(), "seconds": self.seconds, "launch": self.launch}


class BusyRule(DenseRule):
    """Splits a Busy as a Dense; a shard takes its share of the time, but for the launch."""

    name = "busy"
    layers = ("emulated.devices:Busy",)

    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The changes of a Dense, and the time of a part."""
        sizes = way.splits["kernel"].sizes
        share = sizes[shard] / sum(sizes)
        return {**super().changes(layer, way, shard), "seconds": share * layer.seconds}


BUSY = BusyRule()


_identity, _sum = tf.identity, Group._sum


@contextlib.contextmanager
def linked(rate: float | None) -> Iterator[None]:
    """In the block, engines that are traced copy and sum at ``rate`` bytes a second; None: freely.

    Engines copy a tensor to another device by ``tf.identity``, and sum gradients by
    :class:`~stagecraft.trainer_module.engines.collectives.Group`. A device sends one message at a
    time, and receives one at a time, while it computes. A sum goes around a ring.
    """

    def identity(values: Any, name: str | None = None) -> tf.Tensor:
        copied = _identity(values, name)
        if tf.executing_eagerly() or not copied.dtype.is_floating:
            return copied
        source, target = device_of(values), device_of(copied)
        if not source or not target or source == target:
            return copied

        @tf.custom_gradient
        def copy(given: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def back(upstream: tf.Tensor) -> tf.Tensor:
                with tf.device(source), tf.name_scope("links/"):  # the op is of neither device
                    return identity(upstream)

            ends = [f"{source} sends", f"{target} receives"]
            return occupied(given, ends, lambda array: array.nbytes / rate), back

        return copy(values)

    def total(self: Group, token: tf.Variable, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The result of ``Group._sum``, later by the time of the all-reduce."""
        sums = _sum(self, token, tensors)
        size = sum(each.shape.num_elements() * each.dtype.size for each in sums)
        seconds = all_reduce_seconds(size, self._size, Link(rate))
        device = device_of(sums[0])
        ends = [f"{device} sends", f"{device} receives"]
        late = occupied(sums[0], ends, lambda _: seconds)
        return [late, *sums[1:]]

    if rate is None:
        yield
        return
    with mock.patch.object(tf, "identity", identity), mock.patch.object(Group, "_sum", total):
        yield
