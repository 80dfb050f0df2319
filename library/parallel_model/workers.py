"""The processes that train a model together, each with its part of every batch.

Each process reads whole batches, and computes the model's call for its own rows. Outputs and
gradients are added up, so that loss, metrics and update are those of the whole batch in each of
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from keras.src import backend

# Not public; see the pins.
from tensorflow.python.eager import context, record

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.engines import factory
from stagecraft.trainer_module.engines.collectives import Group
from stagecraft.trainer_module.parallel import cluster, topology as topologies
from stagecraft.trainer_module.parallel.topology import Topology, choose_devices
from stagecraft.trainer_module.settings import ParallelSettings

_HOST = "CPU:0"

OTHER_BATCHES = "stagecraft: the processes do not read the same batches"


Settings = TypeVar("Settings", bound=ParallelSettings)


_connected: list[tuple[ParallelSettings, Topology]] = []


def connect(parallel: Settings) -> Settings:
    """Meets the other processes that ``TF_CONFIG`` names, before this one makes a model.

    A script that runs in each process calls it first. TensorFlow sets up collectives between
    processes only before it starts, so a model that was there already could not use them.

    Args:
        parallel: the topology; without ``workers``, it has those of ``TF_CONFIG``.

    Returns:
        The topology, for :func:`parallelize`.

    Raises:
        UserError: ``TF_CONFIG`` does not fit, or TensorFlow has started.
        PeersMissingError: another process does not come in time.
    """
    found = cluster.read()
    strategy = parallel.found
    unset = "workers" not in parallel.model_fields_set
    if found is not None and unset and strategy.several_processes:
        counts = {"workers": len(found.workers)}
        if not strategy.in_step:
            counts = {"workers": len(found.remote_workers), "ps": len(found.ps)}
        parallel = parallel.model_copy(update=counts)
    connected(parallel)
    return parallel


def connected(parallel: ParallelSettings) -> tuple[ParallelSettings, Topology]:
    """This process's devices; connects it with the others, if there are any.

    Returns:
        The topology, and the devices. Workers that only serve are replicas of the chief.

    Raises:
        UserError: as :func:`connect`.
    """
    in_step = parallel.found.in_step
    if parallel.workers == 1 and in_step:
        return parallel, topologies.resolve(parallel)
    if not any(known.workers == parallel.workers for known, _ in _connected):
        _connected.append((parallel, _joined(parallel)))
    if not in_step:
        return _served(parallel)
    known, joined = _connected[-1]
    if known == parallel:
        return parallel, joined
    devices = Topology(
        strategy=parallel.strategy,
        devices=tuple(choose_devices(parallel)),
        stages=parallel.stages,
        shards=parallel.shards,
        workers=parallel.workers,
        worker=joined.worker,
    )
    return parallel, devices


def _joined(parallel: ParallelSettings) -> Topology:
    """Meets the other processes; one that only serves stays here."""
    if context.context()._initialized:
        raise UserError(
            "parallel.workers: TensorFlow started in this process before the workers connected; "
            "call parallel = stagecraft.connect(parallel) before the first model, tensor or "
            "dataset of the script",
            setting="parallel.workers",
            value=parallel.workers,
            suggestion="stagecraft.connect(parallel) first",
        )
    return factory.join(parallel).devices


def _served(parallel: ParallelSettings) -> tuple[ParallelSettings, Topology]:
    """The first device of each worker, as a replica of this process."""
    found = [each.name for each in tf.config.list_logical_devices()]
    names = []
    for task in range(parallel.workers):
        place = f"/job:worker/replica:0/task:{task}/device:"
        own = [name for name in found if name.startswith(place)]
        names.append(next((name for name in own if "GPU" in name), f"{place}CPU:0"))
    parallel = parallel.model_copy(update={"replicas": parallel.workers, "workers": 1})
    return parallel, Topology(strategy=parallel.strategy, devices=tuple(names))


_alone: list[bool] = []


def place() -> tuple[int, int]:
    """This process's number, and how many work together now; ``(0, 1)``: this one alone."""
    if _alone or not _connected:
        return 0, 1
    return _connected[-1][1].rows


@contextlib.contextmanager
def alone() -> Iterator[Workers]:
    """In the block, this process works alone."""
    _alone.append(True)
    try:
        yield Workers()
    finally:
        _alone.pop()


class Workers:
    """All processes of a topology, seen from one; each method is called by all of them."""

    def __init__(self, devices: Topology | None = None, all_reduce: str = "auto"):
        """Makes what collectives need; without devices, this process is alone."""
        self.number, self.count = (devices.worker, devices.workers) if devices else (0, 1)
        self._groups: dict[str, Group] = {}
        if devices is None or self.count == 1:
            return
        for name in dict.fromkeys([_HOST, *devices.devices]):
            hint = all_reduce if name.startswith("GPU") else "auto"
            self._groups[name] = Group([name], hint, self.count)

    def sum(
        self, tensors: Sequence[tf.Tensor], device: str = _HOST, number: int = 0
    ) -> list[tf.Tensor]:
        """The sums over the processes, for tensors that a device holds; no gradient.

        Args:
            number: tells sums of equal sizes apart, whose order may differ between processes.
        """
        if self.count == 1 or not tensors:
            return list(tensors)
        with tf.device(device), record.stop_recording():
            narrow = [_exact(each) for each in tensors]
            summed = self._groups[device].all_reduce(0, narrow, number)
            return [tf.cast(x, each.dtype) for x, each in zip(summed, tensors, strict=True)]

    def total(self, gradients: Sequence[Any], device: str, number: int = 0) -> list[Any]:
        """The sums of gradients; those of embeddings stay sparse, with the lookups of all."""
        if self.count == 1:
            return list(gradients)
        dense = [each for each in gradients if not isinstance(each, tf.IndexedSlices)]
        sums = iter(self.sum(dense, device, number))
        return [
            self._gathered(each, device, number)
            if isinstance(each, tf.IndexedSlices)
            else next(sums)
            for each in gradients
        ]

    def _gathered(self, slices: tf.IndexedSlices, device: str, number: int) -> tf.IndexedSlices:
        with tf.device(device):
            own = tf.shape(slices.indices)[0]
            there = tf.one_hot(self.number, self.count, own, 0, dtype=tf.int32)
            counts = self.sum([there], device, number)[0]
            before = tf.reduce_sum(counts[: self.number])
            after = tf.reduce_sum(counts) - before - own
            placed = [
                tf.pad(each, [[before, after], *[[0, 0]] * (each.shape.rank - 1)])
                for each in (slices.values, slices.indices)
            ]
            values, indices = self.sum(placed, device, number)
        return tf.IndexedSlices(values, indices, slices.dense_shape)

    def added(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The sums over the processes; each process has the gradient of the sum."""
        return self._recorded("Added", tensors, self.sum(tensors), lambda gradient, _: gradient)

    def joined(
        self, outputs: Any, begin: tf.Tensor, total: tf.Tensor, refuse: Callable[[Any], Any]
    ) -> Any:
        """The outputs for the whole batch, from those of this process's rows.

        Args:
            begin: number of the first row of this process.
            total: rows of the batch.
            refuse: called with an output whose rows cannot be put together.
        """
        if self.count == 1:
            return outputs
        leaves = tf.nest.flatten(outputs)
        places = [place for place, leaf in enumerate(leaves) if tf.is_tensor(leaf)]
        own = [leaves[place] for place in places]
        for leaf in own:
            if not isinstance(leaf, tf.Tensor) or leaf.dtype not in _NARROW:
                refuse(leaf)
        masks = [backend.get_keras_mask(leaf) for leaf in own]
        own += [mask for mask in masks if mask is not None]
        with record.stop_recording():
            placed = []
            for leaf in own:
                after = total - begin - tf.shape(leaf)[0]
                edges = [[begin, after], *[[0, 0]] * (leaf.shape.rank - 1)]
                placed.append(tf.pad(_exact(leaf), edges))
            whole = [tf.cast(x, y.dtype) for x, y in zip(self.sum(placed), own, strict=True)]
            for one, leaf in zip(whole, own, strict=True):
                one.set_shape([None, *leaf.shape[1:]])
        sizes = [tf.shape(leaf)[0] for leaf in own]
        whole = self._recorded(
            "Joined", own, whole, lambda gradient, place: gradient[begin:][: sizes[place]]
        )
        rest = iter(whole)
        for place in places:
            leaves[place] = next(rest)
        for place, mask in zip(places, masks, strict=True):
            if mask is not None:
                backend.set_keras_mask(leaves[place], next(rest))
        return tf.nest.pack_sequence_as(outputs, leaves)

    def _recorded(
        self,
        name: str,
        given: Sequence[tf.Tensor],
        made: Sequence[tf.Tensor],
        back: Callable[[tf.Tensor, int], tf.Tensor],
    ) -> list[tf.Tensor]:
        """Tells tapes the gradient of what has been made without them.

        Args:
            back: of an incoming gradient and its place, the gradient of what was given.
        """
        if self.count == 1 or not record.could_possibly_record():
            return list(made)
        made = [tf.identity(each) for each in made]

        def backward(*incoming: tf.Tensor | None) -> list[tf.Tensor | None]:
            return [None if x is None else back(x, place) for place, x in enumerate(incoming)]

        record.record_operation(name, made, list(given), backward)
        return made

    def same(self, batch: Any) -> tf.Operation | None:
        """Fails where the processes do not have the same batch; None: there is one process."""
        if self.count == 1:
            return None
        with tf.device(_HOST), record.stop_recording():
            own = tf.add_n([tf.zeros([], tf.float64), *map(_content, tf.nest.flatten(batch))])
            mean = self.sum([own])[0] / self.count
            near = tf.abs(own - mean) <= 1e-9 * (1 + tf.abs(mean))
            either = near | ~tf.math.is_finite(own)
            return tf.debugging.Assert(either, [OTHER_BATCHES, own, mean])

    def from_chief(self, variables: Sequence[Any], numbers: Sequence[float] = ()) -> list[float]:
        """Gives variables the values that the chief's have; returns the chief's numbers."""
        if self.count == 1:
            return list(numbers)
        given = [tf.convert_to_tensor(variable) for variable in variables]
        given.append(tf.constant(list(numbers), tf.float64))
        own = [each if self.number == 0 else tf.zeros_like(each) for each in given]
        *values, found = self.sum(own)
        if self.number:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return [float(each) for each in found]


_NARROW = {
    **{each: each for each in (tf.float16, tf.bfloat16, tf.float32, tf.float64)},
    **{each: each for each in (tf.int32, tf.int64)},
    **dict.fromkeys((tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16), tf.int32),
    **dict.fromkeys((tf.uint32, tf.uint64), tf.int64),
}
"""Dtype -> a dtype that collectives can sum, and that holds all of its values."""


def _exact(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, _NARROW[tensor.dtype])


def _content(leaf: Any) -> tf.Tensor:
    """A number that other rows, or an other order of them, would change."""
    if leaf is None:
        return tf.zeros([], tf.float64)
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
        leaf = leaf.flat_values if isinstance(leaf, tf.RaggedTensor) else leaf.values
    leaf = tf.convert_to_tensor(leaf)
    if leaf.dtype == tf.string:
        leaf = tf.strings.to_hash_bucket_fast(leaf, 1 << 20)
    flat = tf.cast(tf.reshape(leaf, [-1]), tf.float64)
    places = tf.cast(tf.range(tf.size(flat)) % 8191, tf.float64)
    return tf.tensordot(flat, 1 + places, 1) + tf.cast(tf.size(flat), tf.float64)
