"""Reads every example, and checks its features against rules and settings.

:func:`scan` is vectorized over batches and parallel over files. Only the ids need memory per
example. :func:`value_mismatches` reads features whose settings accept some values only, such as
dates.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import statistics_pb2

from stagecraft.common.errors import UserError
from stagecraft.common.text import visible
from stagecraft.components.anomaly_gate.checks import SIZE_CODE, Finding, Rule
from stagecraft.components.feature_statistics import name_of
from stagecraft.schemas import features
from stagecraft.trainer_module import decoding
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch
from stagecraft.trainer_module.data.tasks.tables.column import ValueCheck

_BATCH = 256
_PARALLEL_FILES = 8
_READ_BUFFER = 1 << 20  # bytes per file
_KINDS = ("none", "several", "outside")  # kinds of violations of a rule
_NO_ID = -(2**63)  # marks an example without one (or with several)


class _Offence(NamedTuple):
    """The first example of a kind; sorts by file and record."""

    file: int
    record: int
    example_id: int
    detail: int  # the value or length that is out of bounds, or the number of values
    name: bytes  # of the picture's file; may be empty


class Ids(NamedTuple):
    """The ids of a split, and the place of each; 16 bytes per example."""

    split: str
    files: Sequence[str]
    ids: npt.NDArray[np.int64]
    file: npt.NDArray[np.int32]  # index into ``files``
    record: npt.NDArray[np.int32]  # position in the file, from 0


def scan(
    files_of: Mapping[str, Sequence[str]], rules: Sequence[Rule], *, named: bool = False
) -> tuple[list[Finding], list[Ids]]:
    """Checks every example of every split; files that end in ``.gz`` are compressed.

    ``named``: the examples may have the names of their files, as bytes.

    The values must have the rules' types, see
    :func:`stagecraft.components.anomaly_gate.checks.readable`. Returns the findings; and for each
    split, the ids of the examples that have exactly one id.
    """
    files = [file for files in files_of.values() for file in files]
    tallies = {split: _Tally.empty(len(rules)) for split in files_of}
    of_file = [tallies[split] for split, own in files_of.items() for _ in own]
    try:
        batches = _dataset(files, rules, named).as_numpy_iterator() if files and rules else ()
        for file, start, batch in batches:
            of_file[file].add(int(file), int(start), batch)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        # TensorFlow raises UnicodeDecodeError if its message quotes a binary record.
        raise _unreadable(error, files) from error

    findings = [
        _finding(split, rules[kind // len(_KINDS)], _KINDS[kind % len(_KINDS)], tally, kind, files)
        for split, tally in tallies.items()
        for kind in sorted(tally.first)
    ]
    return findings, [
        Ids(split, files, *(np.concatenate(parts) for parts in zip(*tally.ids, strict=True)))
        for split, tally in tallies.items()
    ]


@dataclasses.dataclass
class _Tally:
    """Totals of a split's batches; a kind is an index over rules and ``_KINDS``."""

    total: int
    counts: npt.NDArray[np.int64]
    first: dict[int, _Offence]
    ids: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]]

    @classmethod
    def empty(cls, rules: int) -> _Tally:
        none = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        return cls(0, np.zeros(rules * len(_KINDS), np.int64), {}, [none])

    def add(self, file: int, start: int, batch: dict[str, npt.NDArray[np.int64]]) -> None:
        self.total += batch["ids"].size
        self.counts += batch["counts"]
        for kind in np.flatnonzero(batch["counts"]).tolist():
            row = int(batch["rows"][kind])
            offence = _Offence(
                file,
                start + row,
                int(batch["ids"][row]),
                int(batch["details"][kind]),
                bytes(batch["names"][kind]),
            )
            self.first[kind] = min(self.first.get(kind, offence), offence)
        rows = np.flatnonzero(batch["ids"] != _NO_ID)
        places = (np.full(rows.size, file, np.int32), (start + rows).astype(np.int32))
        self.ids.append((batch["ids"][rows], *places))


def _finding(
    split: str, rule: Rule, what: str, tally: _Tally, kind: int, files: Sequence[str]
) -> Finding:
    offence = tally.first[kind]
    example_id = None if offence.example_id == _NO_ID else offence.example_id
    name = visible(offence.name.decode(errors="replace"))
    where = _describe(files[offence.file], offence.record, example_id, name)
    share = f"{tally.counts[kind]:,} of {tally.total:,} examples"
    expected = rule.expected if what == "outside" else "exactly one value"
    found = {
        "none": f"{share} have no value, the first is {where}",
        "several": f"{share} have several values, the first ({offence.detail} values) is {where}",
        "outside": f"{share} violate this, the first ({rule.shown(offence.detail)}) is {where}",
    }
    return Finding(split, rule.feature, expected, found[what], name)


def _dataset(files: Sequence[str], rules: Sequence[Rule], named: bool) -> tf.data.Dataset:
    """Elements: index of the file, position of the batch's first record, result of ``_check``."""
    check = _checker(tuple(rules), named)

    def read(file: tf.Tensor, path: tf.Tensor, compression: tf.Tensor) -> tf.data.Dataset:
        batches = tf.data.TFRecordDataset(path, compression, _READ_BUFFER).batch(_BATCH)
        return batches.enumerate().map(
            lambda number, records: (file, number * _BATCH, check(records))
        )

    compressions = [_compression(file) for file in files]
    numbered = (np.arange(len(files)), np.array(files, str), np.array(compressions, str))
    return tf.data.Dataset.from_tensor_slices(numbered).interleave(
        read, cycle_length=_PARALLEL_FILES, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _compression(file: str) -> str:
    """Of a file of TFRecords, by its name."""
    return "GZIP" if file.endswith(".gz") else ""


@functools.lru_cache(maxsize=8)
def _checker(rules: tuple[Rule, ...], named: bool) -> Callable[[tf.Tensor], Any]:
    """``_check`` for these rules as a graph; traced once for all files."""
    return tf.function(
        lambda records: _check(records, rules, named),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


def _check(records: tf.Tensor, rules: Sequence[Rule], named: bool) -> dict[str, tf.Tensor]:
    """Checks a batch of serialized tf.train.Examples.

    Returns:
      ``ids`` int64 [n] (``_NO_ID`` where there is not exactly one), and for each rule and kind,
      [rules * kinds]: ``counts`` of offending examples, ``rows`` of the first in the batch, and its
      ``details``, int64; and the ``names`` of their files, string, empty without one.
    """
    count = tf.size(records, tf.int64)
    ids = tf.fill([count], tf.constant(_NO_ID, tf.int64))
    spec = {r.feature: tf.io.RaggedFeature(tf.string if r.is_bytes else tf.int64) for r in rules}
    names = tf.fill([count], "")
    if named:
        parsed = tf.io.parse_example(records, {features.FILE_NAME: tf.io.RaggedFeature(tf.string)})
        names = tf.strings.reduce_join(parsed[features.FILE_NAME], axis=1)
    parsed = tf.io.parse_example(records, spec)
    counts, rows, details = [], [], []
    for rule in rules:
        row_of, number = parsed[rule.feature].value_rowids(), parsed[rule.feature].row_lengths()
        values = parsed[rule.feature].flat_values
        if rule.picture:
            size_codes = functools.partial(_size_codes, rule=rule)
            values = tf.ensure_shape(tf.numpy_function(size_codes, [values], tf.int64), [None])
        elif rule.is_bytes:
            values = tf.cast(tf.strings.length(values), tf.int64)
        if rule.feature == features.ID:
            one = tf.gather(number, row_of) == 1
            places = tf.boolean_mask(row_of, one)[:, tf.newaxis]
            ids = tf.tensor_scatter_nd_update(ids, places, tf.boolean_mask(values, one))

        outside = tf.zeros_like(values, tf.bool)
        if rule.low is not None:
            outside |= values < rule.low
        if rule.high is not None:
            outside |= values > rule.high
        offends = (
            number == 0,
            number > 1,
            tf.math.unsorted_segment_sum(tf.cast(outside, tf.int64), row_of, count) > 0,
        )
        counts += [tf.math.count_nonzero(mask) for mask in offends]
        rows += [tf.argmax(mask) for mask in offends]
        first_outside = tf.boolean_mask(values, outside)[:1]
        details += [0, number[rows[-2]], tf.reduce_sum(first_outside)]  # the sum of none is 0
    return {
        "ids": ids,
        "counts": tf.stack(counts),
        "rows": tf.stack(rows),
        "names": tf.gather(names, tf.stack(rows)),
        "details": tf.stack([tf.cast(detail, tf.int64) for detail in details]),
    }


def _size_codes(pictures: npt.NDArray[np.object_], rule: Rule) -> npt.NDArray[np.int64]:
    """``SIZE_CODE`` of each encoded picture, ``[n]``; decodes them as Transform will."""
    assert rule.picture is not None, "the values are those of a picture"
    size = decoding.size_fn(rule.picture.shape[-1], rule.feature == features.MASK)
    return np.array([_size_code(picture, size) for picture in pictures], np.int64)


def _size_code(picture: bytes, size: Callable[[bytes], Any]) -> int:
    try:
        height, width = size(picture).numpy().tolist()
    except tf.errors.OpError:
        return 0
    return int(height * SIZE_CODE + width)


def _unreadable(error: Exception, files: Sequence[str]) -> UserError:
    """The error for files of which one cannot be read."""
    expected = "Expected TFRecords of tf.train.Examples; delete the file's folder and run again."
    for file in files:
        record = 0
        try:
            for serialized in tf.data.TFRecordDataset(file, _compression(file)).as_numpy_iterator():
                tf.train.Example.FromString(serialized)
                record += 1
        except tf.errors.OpError as again:
            cause = again.message.splitlines()[0].rstrip(". ")
            return UserError(
                f"{file}: cannot be read after {record:,} records: {cause}. {expected}",
                file=file,
                record=str(record),
            )
        except DecodeError:
            return UserError(
                f"{file}: record {record} (from 0) is not a tf.train.Example. {expected}",
                file=file,
                record=str(record),
            )
    return UserError(f"The examples cannot be read: {error!s:.500}")


def duplicates(splits: Sequence[Ids]) -> list[Finding]:
    """A finding for each pair of splits that share ids, and for each split that repeats some.

    A finding names the later split of a pair. An id that occurs three times counts twice.
    """
    ids = np.concatenate([split.ids for split in splits])
    of_split = np.repeat(np.arange(len(splits)), [split.ids.size for split in splits])
    order = np.argsort(ids, kind="stable")  # equal ids stay in the order of the splits
    is_new = np.concatenate([[True], np.diff(ids[order]) != 0])[: ids.size]
    begin = np.maximum.accumulate(np.where(is_new, np.arange(ids.size), 0))
    later, earlier = order[~is_new], order[begin[~is_new]]

    findings = []
    for a, b in sorted({*zip(of_split[earlier].tolist(), of_split[later].tolist(), strict=True)}):
        offenders = later[(of_split[earlier] == a) & (of_split[later] == b)]
        split = splits[b]
        place = offenders.min() - np.searchsorted(of_split, b)
        where = _describe(
            split.files[split.file[place]], int(split.record[place]), int(split.ids[place])
        )
        share = f"{offenders.size:,} of {split.ids.size:,} examples"
        if a == b:
            expected, found = "unique ids", f"{share} repeat an id"
        else:
            expected = f"ids of no other split (examples of {splits[a].split} leaked here)"
            found = f"{share} have an id of {splits[a].split}"
        findings.append(
            Finding(split.split, features.ID, expected, f"{found}, the first is {where}")
        )
    return findings


def _describe(file: str, record: int, example_id: int | None, name: str = "") -> str:
    """Names an example for people: its picture's file or its id, if known, and its record."""
    place = f"record {record} (from 0) of {file}"
    if name:
        return f"{name}, {place}"
    return place if example_id is None else f"id {example_id}, {place}"


_VALUES_BATCH = 4096
_LONGEST = 100  # characters of a value in a message

_Type = statistics_pb2.FeatureNameStatistics
_DTYPES = {_Type.INT: tf.int64, _Type.FLOAT: tf.float32, _Type.STRING: tf.string}


def value_mismatches(
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
            for mismatch in _wrong_values(
                split, files, check, dtype, statistics[split].num_examples
            )
        )
        yield from itertools.islice(found, 1)


def _wrong_values(
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
            batches = tf.data.TFRecordDataset(file, _compression(file)).batch(_VALUES_BATCH)
            for number, records in enumerate(batches):
                rows, values = wrong(records)
                if not count and len(rows):
                    shown = values[0].numpy()
                    example = shown.decode(errors="replace") if dtype == tf.string else str(shown)
                    place = _describe(file, number * _VALUES_BATCH + int(rows[0]), None)
                count += len(tf.unique(rows).y)
    except tf.errors.DataLossError as error:
        raise _unreadable(error, files) from error
    if count:
        problem = (
            f"takes {check.expected}, but {count:,} of {total:,} examples of the split {split} "
            f"have others in the column {check.feature!r}: {visible(example)[:_LONGEST]!r} is the "
            f"first, {place}"
        )
        use = check.suggest(example) or f"{check.expected} in the data"
        yield Mismatch(check.setting, check.value, check.feature, problem, use)
