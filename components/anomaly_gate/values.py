"""Checks each value of the features whose settings accept some values only, such as dates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf
from tensorflow_metadata.proto.v0 import statistics_pb2

from stagecraft.common.text import visible
from stagecraft.components.anomaly_gate.scan import compression, describe, unreadable
from stagecraft.components.feature_statistics import name_of
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch
from stagecraft.trainer_module.data.tasks.tables.column import ValueCheck

_BATCH = 4096
_LONGEST = 100  # characters of a value in a message

_Type = statistics_pb2.FeatureNameStatistics
_DTYPES = {_Type.INT: tf.int64, _Type.FLOAT: tf.float32, _Type.STRING: tf.string}


def mismatches(
    files_of: Mapping[str, Sequence[str]],
    statistics: Mapping[str, statistics_pb2.DatasetFeatureStatistics],
    wanted: Sequence[ValueCheck],
) -> Iterator[Mismatch]:
    """A mismatch for each check that values fail, with the first split that has such values.

    Args:
        files_of: TFRecords of each split.
        statistics: of each split, for the types of the features.
    """
    types = {
        split: {name_of(each): each.type for each in found.features}
        for split, found in statistics.items()
    }
    for check in wanted:
        found = (
            mismatch
            for split, files in files_of.items()
            if (dtype := _DTYPES.get(types[split].get(check.feature, -1)))
            for mismatch in _of_split(split, files, check, dtype, statistics[split].num_examples)
        )
        yield from itertools.islice(found, 1)


def _of_split(
    split: str, files: Sequence[str], check: ValueCheck, dtype: tf.DType, total: int
) -> Iterator[Mismatch]:
    spec = {check.feature: tf.io.RaggedFeature(dtype)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def wrong(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The records with a wrong value, and these values."""
        found = tf.io.parse_example(records, spec)[check.feature]
        values, rows = found.flat_values, found.value_rowids()
        # NaN does not equal itself.
        known = values != "" if dtype == tf.string else tf.equal(values, values)
        values, rows = tf.boolean_mask(values, known), tf.boolean_mask(rows, known)
        is_wrong = ~check.accepts(values)
        return tf.boolean_mask(rows, is_wrong), tf.boolean_mask(values, is_wrong)

    count, example, place = 0, "", ""
    try:
        for file in files:
            batches = tf.data.TFRecordDataset(file, compression(file)).batch(_BATCH)
            for number, records in enumerate(batches):
                rows, values = wrong(records)
                if not count and len(rows):
                    shown = values[0].numpy()
                    example = shown.decode(errors="replace") if dtype == tf.string else str(shown)
                    place = describe(file, number * _BATCH + int(rows[0]), None)
                count += len(tf.unique(rows).y)
    except tf.errors.DataLossError as error:
        raise unreadable(error, files) from error
    if count:
        problem = (
            f"takes {check.expected}, but {count:,} of {total:,} examples of the split {split} "
            f"have others in the column {check.feature!r}: {visible(example)[:_LONGEST]!r} is the "
            f"first, {place}"
        )
        use = check.suggest(example) or f"{check.expected} in the data"
        yield Mismatch(check.setting, check.value, check.feature, problem, use)
