"""All-reduce between the replicas of a stage: one flat vector, one collective a step.

``CollectiveReduceV2`` is what ``tf.distribute`` uses between workers
(``tensorflow/python/distribute/cross_device_utils.py``); used directly, it also takes
replicas that are stages' devices, which no strategy does. An *ordering token*, a variable
on each device, is needed: without it two replicas in one function wait for each other
for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow as tf

GROUP_KEY_BASE = 1000
"""Keys below are the framework's own."""

TIMEOUT_SECONDS = 3600.0
"""A peer that does not come is an error, not a wait for ever. One that is lost is noticed at once;
this is longer than the chief may take alone, to export or to wait for an evaluator."""

_DTYPES = 64
"""More than there are."""

_groups = itertools.count(GROUP_KEY_BASE)


class Group:
    """The same stage on all replicas of all workers.

    Workers know a group by its number, so each of them makes the same groups in the same order.
    """

    def __init__(self, devices: Sequence[str], all_reduce: str, workers: int = 1):
        """Makes a token on each device.

        Args:
            devices: one per replica of this worker.
            all_reduce: ``auto``, ``ring`` or ``nccl``: the collective's hint.
            workers: processes, each with as many replicas as this one.
        """
        self._size = len(devices) * workers
        self._key = next(_groups)
        self._hint = all_reduce
        self._tokens = []
        for device in devices:
            with tf.device(device):
                self._tokens.append(tf.Variable(0.0, trainable=False))

    def all_reduce(self, replica: int, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The sum over the replicas of each tensor; every replica of the group calls it.

        ``replica`` counts those of this worker.

        The result is the same, bit for bit, on all of them. Call it under the replica's device.
        """
        tensors = list(tensors)
        if self._size == 1 or not tensors:
            return tensors
        summed: dict[int, tf.Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = tf.concat([tf.reshape(tensors[i], [-1]) for i in places], axis=0)
            flat = tf.raw_ops.CollectiveReduceV2(
                input=flat,
                group_size=self._size,
                group_key=self._key,
                instance_key=_instance(flat),
                ordering_token=[self._tokens[replica].handle],
                merge_op="Add",
                final_op="Id",
                communication_hint=self._hint,
                timeout_seconds=TIMEOUT_SECONDS,
            )
            sizes = [tensors[i].shape.num_elements() for i in places]
            for i, part in zip(places, tf.split(flat, sizes), strict=True):
                summed[i] = tf.reshape(part, tensors[i].shape)
        return [summed[i] for i in range(len(tensors))]


def _instance(flat: tf.Tensor) -> int:
    """A number for each dtype and size: an instance is held to those of its first use."""
    return (_DTYPES * flat.shape.num_elements() + flat.dtype.as_datatype_enum) % 2**31
