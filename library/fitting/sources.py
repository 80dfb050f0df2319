"""Data of the caller's as batches of one size: arrays, or a ``tf.data.Dataset`` of batches."""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.fitting import data_checks, streams
from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.task import Spec

_NONE = "NoneTensorSpec"
"""TensorFlow does not export the type of None in a dataset."""

BATCH_SIZE = 32
"""Keras's default."""


class Source(abc.ABC):
    """Examples in batches."""

    inputs: Any
    """``Spec`` of ``x``, or a structure of them."""
    targets: Any
    batch_size: int
    steps: int
    """Steps of an epoch."""
    of_pass: int | None
    """Batches of a pass through the data; None: not known, or infinite."""
    short: bool
    """Whether the last batch of an epoch may have fewer examples."""

    @abc.abstractmethod
    def train(self, first: int, rows: tuple[int, int]) -> tf.data.Dataset:
        """Endless batches from step ``first`` on; ``rows``: this worker's part, ``(w, n)``."""

    @abc.abstractmethod
    def evaluate(self, batch_size: int, rows: tuple[int, int]) -> tf.data.Dataset:
        """Each example once; a batch size that all replicas can divide."""

    @abc.abstractmethod
    def first_inputs(self, count: int) -> Any:
        """The first ``count`` examples of ``x``, or all if there are fewer; not shuffled."""

    def three_inputs(self) -> Any:
        """Three examples of ``x`` from the first batch, as arrays; repeated if there are fewer."""
        found = self.first_inputs(min(3, self.batch_size))
        return tf.nest.map_structure(lambda part: np.resize(part, (3, *part.shape[1:])), found)

    @abc.abstractmethod
    def rest(self) -> int:
        """Examples of the last batch, if it is short; else 0."""

    @abc.abstractmethod
    def filled(self, batch_size: int) -> int:
        """Examples of a batch of :meth:`evaluate` that copies fill up; 0: all batches are full."""

    @abc.abstractmethod
    def sent(self, folder: str) -> contextlib.AbstractContextManager[Source]:
        """The same data for other processes of this machine, while the block runs.

        Args:
            folder: for files.
        """

    @property
    def error(self) -> Exception | None:
        """What the caller's functions raised while other processes read the data."""
        return None


class Arrays(Source):
    """Arrays in memory, or in files."""

    def __init__(
        self,
        x: Any,
        y: Any,
        weights: Any = None,
        *,
        batch_size: int | None = None,
        steps: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        dtype: str = "float32",
    ):
        """Checks the shapes. ``dtype`` replaces that of other floats, as in Keras.

        Raises:
            SettingError: the arrays have different numbers of examples, or none.
        """
        if y is None:
            raise SettingError("y", "None", "has no targets for the loss", "an array of targets")
        if shuffle not in (True, False):
            raise SettingError("shuffle", shuffle, "is not supported", "True or False")
        parts = {"x": x, "y": y} | ({} if weights is None else {"sample_weight": weights})
        self._parts = tuple(_arrays(name, each, dtype) for name, each in parts.items())
        self.count = data_checks.counts(self._parts)
        self.inputs, self.targets = (_specs(part) for part in self._parts[:2])
        self.batch_size = BATCH_SIZE if batch_size is None else batch_size
        if not isinstance(self.batch_size, (int, np.integer)) or self.batch_size < 1:
            raise SettingError("batch_size", batch_size, "is not a positive number", "32")
        self.of_pass: int = -(-self.count // self.batch_size)
        self.steps = steps or self.of_pass
        self.short = self.count % self.batch_size > 0
        self._shuffle, self._seed = bool(shuffle), seed

    def train(self, first: int, rows: tuple[int, int]) -> tf.data.Dataset:
        """See :meth:`Source.train`; each pass is another permutation, by seed and pass."""
        epoch, skipped = divmod(first, self.of_pass)
        count, seed = self.count, self._seed

        def order(number: tf.Tensor) -> tf.Tensor:
            positions = tf.range(count, dtype=tf.int64)
            if not self._shuffle:
                return positions
            return tf.random.experimental.stateless_shuffle(positions, seed=[seed, number])

        def of_pass(number: tf.Tensor) -> tf.data.Dataset:
            permuted = tf.data.Dataset.from_tensors(order(number)).repeat()
            return tf.data.Dataset.zip(tf.data.Dataset.range(self.of_pass), permuted)

        return (
            tf.data.Dataset.counter(epoch)
            .flat_map(of_pass)
            .skip(skipped)
            .map(self._batch(self.batch_size, rows, True), tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
            .apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        )

    def evaluate(self, batch_size: int, rows: tuple[int, int]) -> tf.data.Dataset:
        """See :meth:`Source.evaluate`; in the order of the arrays, at most ``steps`` batches."""
        count = self._evaluated
        order = tf.data.Dataset.from_tensors(tf.range(count, dtype=tf.int64)).repeat()
        steps = tf.data.Dataset.range(-(-count // batch_size))
        return (
            tf.data.Dataset.zip(steps, order)
            .map(self._batch(batch_size, rows, False, count), tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )

    def first_inputs(self, count: int) -> Any:
        """See :meth:`Source.first_inputs`."""
        return tf.nest.map_structure(lambda part: part[:count], self._loaded()[0])

    def rest(self) -> int:
        """See :meth:`Source.rest`."""
        return self.count % self.batch_size

    def filled(self, batch_size: int) -> int:
        """See :meth:`Source.filled`."""
        return self._evaluated % batch_size

    @property
    def _evaluated(self) -> int:
        return min(self.count, self.steps * self.batch_size)

    def first_batch(self) -> Batch:
        """The first batch of a training, in the order of the arrays."""
        there = min(self.count, self.batch_size)
        positions = np.arange(self.batch_size)
        keys = np.minimum(positions, there - 1)
        inputs, *targets = tf.nest.map_structure(lambda part: part[keys], self._loaded())
        weights = (positions < there) * (self.batch_size / there)
        return Batch(inputs, tuple(targets), weights)

    @contextlib.contextmanager
    def sent(self, folder: str) -> Iterator[Arrays]:
        """Writes each array to a ``.npy`` file."""
        os.makedirs(folder, exist_ok=True)
        paths = []
        for index, leaf in enumerate(tf.nest.flatten(self._parts)):
            paths.append(os.path.join(folder, f"{index}.npy"))
            np.save(paths[-1], leaf)
        copy = object.__new__(Arrays)
        vars(copy).update(vars(self))
        copy._parts = tf.nest.pack_sequence_as(self._parts, paths)
        yield copy

    def _batch(
        self, size: int, rows: tuple[int, int], training: bool, count: int | None = None
    ) -> Any:
        parts = tf.nest.map_structure(tf.constant, self._loaded())
        worker, workers = rows
        begin, end = (size * each // workers for each in (worker, worker + 1))
        count = self.count if count is None else count

        @tf.autograph.experimental.do_not_convert
        def batch(step: tf.Tensor, order: tf.Tensor) -> Batch:
            first = step * size
            there = tf.minimum(tf.constant(size, tf.int64), count - first)
            positions = tf.range(begin, end, dtype=tf.int64)
            keys = tf.gather(order, first + tf.minimum(positions, there - 1))
            inputs, *targets = tf.nest.map_structure(lambda part: tf.gather(part, keys), parts)
            return Batch(inputs, tuple(targets), _weights(positions, there, size, training))

        return batch

    def _loaded(self) -> Any:
        return tf.nest.map_structure(
            lambda part: np.load(part) if isinstance(part, str) else part, self._parts
        )


class Batches(Source):
    """A dataset of ``(x, y)`` or ``(x, y, sample_weight)``, each with a batch of examples."""

    def __init__(self, dataset: tf.data.Dataset, *, steps: int | None = None):
        """Takes the size of the first batch as that of all but the last.

        Counts the batches of a dataset of unknown length in a pass through it.

        Raises:
            SettingError: the elements are not batches, or an infinite dataset has no ``steps``.
        """
        spec = dataset.element_spec
        if isinstance(spec, tuple) and [type(each).__name__ for each in spec[2:]] == [_NONE]:
            dataset = dataset.map(lambda x, y, _: (x, y))
            spec = dataset.element_spec
        if not isinstance(spec, tuple) or len(spec) not in (2, 3):
            kind = f"{len(spec)} parts" if isinstance(spec, tuple) else type(spec).__name__
            problem = f"has elements of {kind}"
            use = "elements (x, y) or (x, y, sample_weight)"
            raise SettingError("x", "the dataset", problem, use)
        data_checks.elements(spec)
        self._batches: streams.Local | streams.Remote = streams.Local(dataset)
        self._server: streams.Server | None = None
        self.inputs, self.targets = (_specs_of(part) for part in spec[:2])
        size = tf.nest.flatten(spec)[0].shape[0]
        self.short = size is None
        if size is None:
            first = next(iter(dataset.take(1)), None)
            size = 0 if first is None else len(tf.nest.flatten(first)[0])
        self.batch_size = size
        if not size:
            raise SettingError("x", "the dataset", "has no batch", "a dataset with examples")
        known = int(dataset.cardinality())
        self.of_pass = known if known >= 0 else None
        self.steps = steps or self._counted(dataset)

    def _counted(self, dataset: tf.data.Dataset) -> int:
        steps = int(dataset.cardinality())
        if steps == tf.data.INFINITE_CARDINALITY:
            raise SettingError(
                "steps_per_epoch",
                "None",
                "does not say where an epoch of the infinite dataset ends",
                "steps_per_epoch=100",
            )
        if steps == tf.data.UNKNOWN_CARDINALITY:
            steps = int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))
        return steps

    def train(self, first: int, rows: tuple[int, int]) -> tf.data.Dataset:
        """See :meth:`Source.train`; the dataset begins again at its end."""
        dataset = self._batches.endless(first, rows)
        batch = self._batch(self.batch_size, rows, True)
        return self._batches.mapped(dataset, batch).apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )

    def evaluate(self, batch_size: int, rows: tuple[int, int]) -> tf.data.Dataset:
        """See :meth:`Source.evaluate`; ``steps`` batches."""
        batch = self._batch(batch_size, rows, False)
        return self._batches.mapped(self._batches.beginning(self.steps, rows), batch)

    def first_inputs(self, count: int) -> Any:
        """See :meth:`Source.first_inputs`; in the order of the dataset."""
        batches = self._batches.beginning(min(self.steps, -(-count // self.batch_size)))
        inputs = [inputs for inputs, *_ in batches]
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0)[:count], *inputs)

    def rest(self) -> int:
        """See :meth:`Source.rest`; counts in a pass through the dataset."""
        batches = self._batches.beginning(self.steps)
        sizes = batches.map(lambda *parts: tf.shape(tf.nest.flatten(parts)[0], tf.int64)[0])
        least = int(sizes.reduce(np.int64(self.batch_size), tf.minimum))
        return least % self.batch_size

    def filled(self, batch_size: int) -> int:
        """See :meth:`Source.filled`; counts in a pass through the dataset."""
        rest = self.rest() if self.short else 0
        return rest or (self.batch_size if batch_size > self.batch_size else 0)

    @contextlib.contextmanager
    def sent(self, folder: str) -> Iterator[Batches]:
        """Iterates here, for all processes: they see what one device would see."""
        assert isinstance(self._batches, streams.Local)
        with streams.Server(self._batches.dataset) as self._server:
            copy = object.__new__(Batches)
            vars(copy).update(vars(self) | {"_batches": self._server.remote, "_server": None})
            yield copy

    @property
    def error(self) -> Exception | None:
        """See :attr:`Source.error`."""
        return None if self._server is None else self._server.error

    def _batch(self, size: int, rows: tuple[int, int], training: bool) -> Any:
        worker, workers = rows
        begin, end = (size * each // workers for each in (worker, worker + 1))
        whole = not self.short and size == self.batch_size and workers == 1

        @tf.autograph.experimental.do_not_convert
        def batch(*parts: Any) -> Batch:
            inputs, *targets = parts
            if whole:
                return Batch(inputs, tuple(targets), tf.ones([size]))
            there = tf.shape(tf.nest.flatten(parts)[0], tf.int64)[0]
            fits = tf.debugging.Assert(there <= size, [TOO_LARGE, there, "expected", size])
            with tf.control_dependencies([fits]):
                positions = tf.range(begin, end, dtype=tf.int64)
            keys = tf.minimum(positions, there - 1)
            inputs, *targets = tf.nest.map_structure(lambda part: tf.gather(part, keys), parts)
            return Batch(inputs, tuple(targets), _weights(positions, there, size, training))

        return batch


TOO_LARGE = "a batch of the dataset is larger than the first one:"


def source(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None,
    steps: int | None,
    shuffle: bool,
    seed: int,
    dtype: str,
) -> Source:
    """Arrays or a dataset.

    Raises:
        SettingError: an argument does not fit.
    """
    if isinstance(x, Source):
        return x
    if isinstance(x, tf.data.Dataset):
        for name, value in (("y", y), ("sample_weight", sample_weight), ("batch_size", batch_size)):
            if value is not None:
                use = "a dataset of batches (x, y, sample_weight) alone"
                raise SettingError(name, type(value).__name__, "is part of the dataset", use)
        return Batches(x, steps=steps)
    data_checks.kind(x)
    return Arrays(
        x, y, sample_weight, batch_size=batch_size, steps=steps, shuffle=shuffle, seed=seed,
        dtype=dtype,
    )  # fmt: skip


def _weights(positions: tf.Tensor, there: Any, size: int, training: bool) -> tf.Tensor:
    """0 for padding. In a short batch of a training, the others make up for it."""
    valid = tf.cast(positions < there, tf.float64)
    if training:
        valid *= tf.cast(size, tf.float64) / tf.cast(there, tf.float64)
    return valid


def _arrays(argument: str, nest: Any, dtype: str) -> Any:
    """Arrays; a list of arrays becomes a tuple, since a dataset makes one tensor of a list."""
    if isinstance(nest, Mapping):
        return {key: _arrays(argument, value, dtype) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)) and all(hasattr(each, "shape") for each in nest):
        return tuple(_arrays(argument, each, dtype) for each in nest)
    array = data_checks.array(argument, nest)
    return array.astype(dtype, copy=False) if array.dtype.kind == "f" else array


def _specs(nest: Any) -> Any:
    return tf.nest.map_structure(lambda part: Spec(part.shape[1:], _name(part.dtype)), nest)


def _specs_of(nest: Any) -> Any:
    return tf.nest.map_structure(lambda spec: Spec(spec.shape[1:], spec.dtype.name), nest)


def _name(dtype: Any) -> str:
    return "string" if dtype.kind in "US" else str(dtype.name)
