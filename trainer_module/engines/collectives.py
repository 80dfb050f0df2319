"""All-reduce between the replicas of a stage: one flat vector, one collective a step.

``tf.distribute`` uses ``CollectiveReduceV2`` between workers
(``tensorflow/python/distribute/cross_device_utils.py``). This module calls it directly, because no
strategy reduces between the devices of stages. It needs an *ordering token*, a
variable on each device: without one, two replicas in one function deadlock.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from stagecraft.trainer_module.parallel.topology import Topology

GROUP_KEY_BASE = 1000
"""Keys below are the framework's own."""

TIMEOUT_SECONDS = 3600.0
"""Limit of waiting for a peer that is alive; TensorFlow notices a lost one at once. The chief needs
less, alone, to export or to wait for an evaluator."""

_DTYPES = 64
"""An upper bound of the number of dtypes in TensorFlow."""

_groups = itertools.count(GROUP_KEY_BASE)


class Group:
    """The same stage on all replicas of all workers."""

    def __init__(self, devices: Sequence[str], all_reduce: str, workers: int = 1):
        """Makes a token on each device: one device per replica, equally many in each worker."""
        self._size = len(devices) * workers
        self._key = next(_groups)
        self._hint = all_reduce
        self._tokens = []
        for device in devices:
            with tf.device(device):
                self._tokens.append(tf.Variable(0.0, trainable=False))

    def all_reduce(
        self, replica: int, tensors: Sequence[tf.Tensor], number: int = 0
    ) -> list[tf.Tensor]:
        """The sum of each tensor over the replicas: the same bits on all of them.

        Every replica of the group calls it, under its device, with the same shapes and dtypes. A
        graph need not know the shapes.

        Args:
            number: of several sums of the same sizes, which the members may make in any order.
        """
        if self._size == 1:
            return list(tensors)
        return by_dtype(tensors, functools.partial(self._sum, self._tokens[replica], number))

    def _sum(
        self, token: tf.Variable, number: int, tensors: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """The sums of tensors of one dtype, sent as one vector."""
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
        flat = tf.raw_ops.CollectiveReduceV2(
            input=flat,
            group_size=self._size,
            group_key=self._key,
            instance_key=_instance(flat, number),
            ordering_token=[token.handle],
            merge_op="Add",
            final_op="Id",
            communication_hint=self._hint,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        parts = tf.split(flat, [_size(tensor) for tensor in tensors])
        shapes = [
            tensor.shape if tensor.shape.is_fully_defined() else tf.shape(tensor)
            for tensor in tensors
        ]
        return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def by_dtype(
    tensors: Sequence[tf.Tensor], reduce: Callable[[list[tf.Tensor]], Sequence[tf.Tensor]]
) -> list[tf.Tensor]:
    """Reduces the tensors of each dtype together; the results are in the order of ``tensors``."""
    results: dict[int, tf.Tensor] = {}
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
        results.update(zip(places, reduce([tensors[i] for i in places]), strict=True))
    return [results[i] for i in range(len(tensors))]


def _size(tensor: tf.Tensor) -> int | tf.Tensor:
    """The number of elements; a tensor if the graph does not know it."""
    size: int | None = tensor.shape.num_elements()
    return tf.size(tensor) if size is None else size


def _instance(flat: tf.Tensor, number: int) -> int | tf.Tensor:
    """The instance key for a dtype and size; TensorFlow requires that both stay the same."""
    size = flat.shape.num_elements()
    kind = flat.dtype.as_datatype_enum + number * _DTYPES * 1_000_003
    if size is not None:
        return (_DTYPES * size + kind) % 2**31
    wide = _DTYPES * tf.size(flat, tf.int64) + kind
    return tf.cast(wide % 2**31, tf.int32)


_HOST = "CPU:0"

FromChief = Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]
"""Gives each worker the chief's values; the arguments have their shapes. Integers become int64."""


class Workers:
    """All workers of a topology, seen from one; each method is called by all of them."""

    def __init__(self, topology: Topology):
        self._topology = topology
        self._group = Group([_HOST], "auto", topology.workers)

    def all_reduce(self, value: tf.Tensor) -> tf.Tensor:
        """The sum over the workers, in a graph; under the host's device."""
        return self._group.all_reduce(0, [value])[0]

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over the workers of what each gives."""
        with tf.device(_HOST):
            own = tf.constant(values, tf.float64)
            return [float(value) for value in self._group.all_reduce(0, [own])[0]]

    def take_from_chief(self, variables: Sequence[keras.Variable]) -> None:
        """Copies the chief's values to the variables of a new model, which are on the host."""
        if self._topology.workers == 1:
            return
        for variable, value in zip(
            variables, self.from_chief([variable.value for variable in variables]), strict=True
        ):
            variable.assign(tf.cast(value, variable.dtype))

    def from_chief(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The chief's values, integers as int64; the others pass values of the same shapes."""
        with tf.device(_HOST):
            wide = [
                tf.convert_to_tensor(value) if value.dtype.is_floating else tf.cast(value, tf.int64)
                for value in values
            ]
            # A sum with zeros is a broadcast.
            own = wide if self._topology.worker == 0 else [tf.zeros_like(value) for value in wide]
            return self._group.all_reduce(0, own)
