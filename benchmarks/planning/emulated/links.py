"""Links with a stated rate: what the engines copy or sum between devices takes its time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf
from emulated.clock import device_of, occupied

from stagecraft.trainer_module.engines.collectives import Group
from stagecraft.trainer_module.planning.collective_costs import Link, all_reduce_seconds

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
