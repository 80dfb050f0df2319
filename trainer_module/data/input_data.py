"""Turns examples into batches: reads, shuffles, transforms and augments them.

Records stay serialized until they are batched, also in memory: parsing a whole batch costs a
microsecond per example, and raw bytes take a quarter of the memory of floats.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.schemas import features
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data import example_files, mixing as mixing_data
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

if typing.TYPE_CHECKING:
    import tensorflow_transform as tft  # imports Beam, which takes seconds

WEIGHTS = "example_weights"
"""In ``custom_config``: the weight of the examples of each of ``train_files``."""

_FILES_AT_ONCE = 16

_TRANSFORMED = "transformed_examples"
"""Start of the names of files that TFX's Transform writes."""

_KINDS = {"bytes_list": tf.string, "float_list": tf.float32, "int64_list": tf.int64}


IMAGES: Task = registries.TASKS.get("image_classification")


def check_features(transform: tft.TFTransformOutput, task: Task = IMAGES) -> None:
    """Checks that a transform graph has the features for training and for export."""
    folder = os.path.dirname(transform.transform_savedmodel_dir)
    features.require(
        f"{folder}: the output of preprocessing_fn",
        transform.transformed_feature_spec(),
        task.features,
        f"return {', '.join(task.features)} from preprocessing_fn",
    )
    features.require(
        f"{folder}: the input of Transform",
        transform.raw_feature_spec(),
        task.served_features,
        f"name {_quoted(task.served_features)} in the examples and in the schema",
    )


def _quoted(names: Sequence[str]) -> str:
    return f"the raw feature {names[0]!r}" if len(names) == 1 else f"the raw features {names}"


def count_examples(files: Sequence[str]) -> int:
    """Number of records in files or patterns (``folder/*``); verifies the checksum of each."""
    return example_files.count(example_files.expand(files))


def first(
    files: Sequence[str], transform: tft.TFTransformOutput, count: int, task: Task = IMAGES
) -> Batch:
    """The first examples; fewer if there are not as many."""
    features, found = _first(files, transform, count, task)
    return task.batch(features, tf.ones([found]))


def fitted(
    settings: TrainingSettings, files: Sequence[str], transform: tft.TFTransformOutput
) -> TrainingSettings:
    """The settings with a task that knows what Transform found; ``files``: of the train split."""
    task = settings.task.found
    if type(task).fitted is Task.fitted:
        return settings

    def vocabulary(name: str) -> Sequence[bytes]:
        is_there = transform.vocabulary_file_by_name(name)
        return transform.vocabulary_by_name(name) if is_there else ()

    return settings.fitted(_first(files, transform, 1, task)[0], vocabulary)


def of_first(
    files: Sequence[str],
    transform: tft.TFTransformOutput,
    count: int,
    batch_size: int,
    task: Task,
    function: Callable[[Batch], tf.Tensor],
) -> tf.data.Dataset:
    """``function`` of each batch of the first examples; computes only what it needs of them."""
    paths = example_files.expand(files)
    to_features = _feature_reader(paths[0], example_files.first(paths), transform, task)

    @tf.autograph.experimental.do_not_convert
    def of_records(records: tf.Tensor) -> tf.Tensor:
        return function(task.batch(to_features(records), tf.ones([tf.size(records)])))

    batches = example_files.records(paths).take(count).batch(batch_size)
    return batches.map(of_records, num_parallel_calls=tf.data.AUTOTUNE)


def _first(
    files: Sequence[str], transform: tft.TFTransformOutput, count: int, task: Task
) -> tuple[dict[str, tf.Tensor], int]:
    paths = example_files.expand(files)
    to_features = _feature_reader(paths[0], example_files.first(paths), transform, task)
    records = next(iter(example_files.records(paths).batch(count)))
    return to_features(records), len(records)


def train_dataset(
    files: Sequence[str],
    transform: tft.TFTransformOutput,
    settings: TrainSettings,
    num_examples: int,
    start_step: int = 0,
    part: tuple[int, int] = (0, 1),
    task: Task = IMAGES,
    epochs_before: int = 0,
    weights: Sequence[float] = (),
) -> tf.data.Dataset:
    """Endless :class:`Batch` of exactly ``settings.batch_size`` examples.

    Every epoch is another permutation of all examples, a function of (seed, epoch). Epochs follow
    each other without a gap: a batch may contain the end of one and the beginning of the next, and
    no example is dropped. Step ``n`` has the same batch for any ``start_step``.

    Args:
        files: paths or patterns of TFRecords: raw examples, or Transform's materialised ones.
        transform: Transform's graph, applied to raw examples.
        start_step: the first step, counted from 0.
        part: ``(w, n)``: the w-th of n equal parts of each batch, for one of n workers. All workers
            use the same order; each parses and augments only its part.
        epochs_before: number of the first epoch: that of a training that continues another one.
        weights: of the examples of each entry of ``files``, divided by their mean over all
            examples, so that the loss keeps its scale; default: all 1.
    """
    paths = example_files.expand(files)
    of_paths, of_examples = tf.ones(len(paths)), tf.ones(num_examples)
    if len({*weights}) > 1:
        of_paths, of_examples = _weights(files, weights)
    first_record = example_files.first(paths)
    to_features = _feature_reader(paths[0], first_record, transform, task)
    in_memory = settings.shuffle == "memory" or (
        settings.shuffle == "auto"
        and num_examples * len(first_record) <= settings.memory_limit_mb * 1_000_000
    )
    if in_memory:
        records = example_files.load(paths, num_examples)
        order = _memory_order(of_examples, settings.seed)
    else:
        order = _stream_order(paths, of_paths, settings.shuffle_buffer, settings.seed)

    @tf.autograph.experimental.do_not_convert  # AutoGraph would take seconds for the layer
    def to_batch(ordered: tuple[tf.Tensor, tf.Tensor], epochs: tf.Tensor) -> Batch:
        keys, weights = ordered
        values = to_features(tf.gather(records, keys) if in_memory else keys)
        batch = task.batch(values, weights)
        batch = task.augment(batch, values, epochs, settings)
        if mixing is None:
            return batch
        seed, alpha, ids = settings.seed, settings.mix_alpha, values[features.ID]
        return mixing_data.mix(mixing, batch, ids, seed=seed, epoch=epochs, alpha=alpha)

    def own(values: tf.Tensor) -> tf.Tensor:
        """This worker's rows; if examples are mixed, also their partners, which others may own."""
        rows = values[start:end]
        return rows if mixing is None else tf.concat([rows, values[::-1][start:end]], axis=0)

    mixing = mixing_data.find(settings.augment)
    worker, workers = part
    start, end = (settings.batch_size * w // workers for w in (worker, worker + 1))
    first_epoch, skipped = divmod(start_step * settings.batch_size, num_examples)
    return (
        tf.data.Dataset.counter(epochs_before + first_epoch)
        .flat_map(lambda epoch: _with(epoch, order(epoch)))
        .skip(skipped)
        .batch(settings.batch_size, drop_remainder=True)
        .map(lambda *columns: tf.nest.map_structure(own, columns))
        .map(to_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
        # Otherwise workers ask each other before each batch whether one has ended.
        .apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    )


def eval_dataset(
    files: Sequence[str],
    transform: tft.TFTransformOutput,
    batch_size: int,
    part: tuple[int, int] = (0, 1),
    task: Task = IMAGES,
) -> tf.data.Dataset:
    """Every example once, in the order of the files, as :class:`Batch` of one size.

    Copies of the last example, with weight 0, fill up the last batch. See :func:`train_dataset`.
    """
    worker, workers = part
    start, end = (batch_size * w // workers for w in (worker, worker + 1))
    paths = example_files.expand(files)
    example_files.count(paths)  # reports damage now, with the name of the file
    to_features = _feature_reader(paths[0], example_files.first(paths), transform, task)

    @tf.autograph.experimental.do_not_convert  # AutoGraph would take seconds for the layer
    def to_batch(records: tf.Tensor) -> Batch:
        count = tf.size(records)
        positions = tf.range(start, end)
        values = to_features(tf.gather(records, tf.minimum(positions, count - 1)))
        weights = tf.cast(positions < count, tf.float32)
        return task.batch(values, weights)

    return (
        example_files.records(paths)
        .batch(batch_size)
        .map(to_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def _weights(files: Sequence[str], weights: Sequence[float]) -> tuple[tf.Tensor, tf.Tensor]:
    """The weights of the examples of each path, and of all examples in the order of the paths."""
    paths = [tf.io.gfile.glob(each) for each in files]
    counts = [example_files.count(each) if each else 0 for each in paths]
    of_examples = np.repeat(weights, counts)
    of_paths, mean = np.repeat(weights, [*map(len, paths)]), of_examples.mean()
    return tf.constant(of_paths / mean, tf.float32), tf.constant(of_examples / mean, tf.float32)


Order = Callable[[tf.Tensor], tf.data.Dataset]
"""Maps an epoch to keys and weights: each example once."""


def _memory_order(weights: tf.Tensor, seed: int) -> Order:
    """Keys are positions, int64, in a full permutation."""

    def order(epoch: tf.Tensor) -> tf.data.Dataset:
        # Not index_shuffle: its permutations of neighbouring epochs correlate with 0.67.
        positions = tf.random.experimental.stateless_shuffle(
            tf.range(tf.size(weights, tf.int64)), seed=[seed, epoch]
        )
        return tf.data.Dataset.from_tensor_slices((positions, tf.gather(weights, positions)))

    return order


def _stream_order(paths: list[str], weights: tf.Tensor, buffer: int, seed: int) -> Order:
    """Keys are serialized examples: of interleaved files, in shuffled blocks."""
    # Not Dataset.shuffle: its seed mixes with TensorFlow's global one.
    compression = example_files.compression(paths)

    def shuffle(values: Any, key: tf.Tensor) -> Any:
        """All tensors in one order."""
        return tf.nest.map_structure(
            lambda each: tf.random.experimental.stateless_shuffle(each, seed=key), values
        )

    def order(epoch: tf.Tensor) -> tf.data.Dataset:
        key = tf.stack([tf.constant(seed, tf.int64), epoch])

        def shuffle_block(number: tf.Tensor, block: Any) -> Any:
            return shuffle(block, tf.random.experimental.stateless_fold_in(key, number))

        return (
            tf.data.Dataset.from_tensor_slices(shuffle((tf.constant(paths), weights), key))
            .interleave(
                lambda path, weight: _with(
                    weight, tf.data.TFRecordDataset(path, compression_type=compression)
                ),
                cycle_length=_FILES_AT_ONCE,
                deterministic=True,
            )
            .batch(buffer)
            .enumerate()
            .map(shuffle_block)
            .prefetch(1)
            .unbatch()
        )

    return order


def _with(value: tf.Tensor, elements: tf.data.Dataset) -> tf.data.Dataset:
    """The elements, each with the value behind it."""
    return tf.data.Dataset.zip(elements, tf.data.Dataset.from_tensors(value).repeat())


def _feature_reader(
    path: str, record: bytes, transform: tft.TFTransformOutput, task: Task
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Maps serialized examples ``[n]`` like ``record`` to transformed features ``[n, ...]``."""
    check_features(transform, task)
    transformed_spec, raw_spec = transform.transformed_feature_spec(), transform.raw_feature_spec()
    if _is_transformed(path, record, raw_spec, transformed_spec):
        return lambda records: tf.io.parse_example(records, transformed_spec)
    layer = transform.transform_features_layer()
    return lambda records: layer(tf.io.parse_example(records, raw_spec))


def _is_transformed(
    path: str, record: bytes, raw_spec: Mapping[str, Any], transformed_spec: Mapping[str, Any]
) -> bool:
    """Whether Transform wrote a record of the file ``path``."""
    kinds = {
        name: _KINDS.get(value.WhichOneof("kind"))
        for name, value in tf.train.Example.FromString(record).features.feature.items()
    }
    fits_raw, fits = (_fits(kinds, spec) for spec in (raw_spec, transformed_spec))
    if fits_raw and fits:
        return os.path.basename(path).startswith(_TRANSFORMED)
    return fits


def _fits(kinds: Mapping[str, tf.DType | None], spec: Mapping[str, Any]) -> bool:
    """Whether a record with features of these kinds has the dense features of a spec."""
    return all(
        kinds.get(name) == feature.dtype
        for name, feature in spec.items()
        if isinstance(feature, tf.io.FixedLenFeature) and feature.default_value is None
    )
