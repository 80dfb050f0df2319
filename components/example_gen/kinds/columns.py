"""Columns of a table as features of tf.Examples: of Parquet and Avro files, by Arrow.

TFX's executors for these files write 0, False and an empty text as missing values. Here only a null
is one.

| column | feature |
|---|---|
| whole number, boolean, decimal without fraction digits | int64 |
| other decimal, float | float32, as tf.Examples have no other |
| text, bytes | bytes; a text in UTF-8 |
| date | int64: days since 1970-01-01 |
| timestamp, time, duration | int64: whole microseconds; a timestamp since 1970-01-01 in UTC |
| list of one of these | several values |
| null | no value |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.types.standard_component_specs import INPUT_BASE_KEY
from tfx_bsl.coders import example_coder

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.sample import fingerprint

ARGUMENTS = "data.example_gen_args"
"""The setting with the arguments of an ExampleGen."""

ROWS = 1000
"""Rows that a worker converts at once."""

MICROSECONDS = "us"


class TableExampleGen(FileBasedExampleGen):
    """Base of ExampleGens of files with typed columns."""

    EXECUTOR: type[BaseExampleGenExecutor]

    def __init__(
        self,
        input_base: Any = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
    ) -> None:
        """Arguments of TFX's ``FileBasedExampleGen``: folder, its splits, and those to write."""
        FileBasedExampleGen.__init__(  # that of TFX's CsvExampleGen has fewer arguments
            self,
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            range_config=range_config,
            # TFX's cache key has the name of an executor, not its code.
            custom_config=fingerprint(type(self).__module__),
            custom_executor_spec=BeamExecutorSpec(self.EXECUTOR),
        )


def examples(batch: pa.RecordBatch, path: str) -> Iterator[tf.train.Example]:
    """The rows of a table.

    Args:
        path: of the file, for errors.

    Raises:
        UserError: a column has a type or a value that a tf.Example cannot hold.
    """
    encoder = example_coder.RecordBatchToExamplesEncoder()
    names = batch.schema.names
    lists = [_lists(batch.column(i), path, name) for i, name in enumerate(names)]
    for serialized in encoder.encode(pa.RecordBatch.from_arrays(lists, names)):
        # The encoder's bytes differ between runs, and TFX splits by a hash of bytes.
        yield tf.train.Example.FromString(serialized)


def features(schema: pa.Schema, path: str) -> dict[str, str]:
    """The type of each column's feature: ``int64``, ``float``, ``bytes``, or ``null``: any.

    Raises:
        UserError: two columns have one name, or a column has another type than those of the module.
    """
    check_names(schema.names, path)
    found = {}
    for field in schema:
        kind = _lists(pa.array([], field.type), path, field.name).type.value_type
        found[field.name] = (
            "null" if pa.types.is_null(field.type) else str(kind).replace("large_binary", "bytes")
        )
    return found


def check_names(names: Sequence[str], path: str) -> None:
    """Refuses columns of one name: only one of them could become a feature.

    Raises:
        UserError: there are such columns.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(
            f"{path}: {names.count(twice[0])} columns have the name {twice[0]!r}. Give each "
            "column a name of its own.",
            file=path,
            record=twice[0],
            suggestion="a name of its own for each column",
        )


def _lists(column: pa.Array, path: str, name: str) -> pa.Array:
    """``large_list`` of int64, float32 or large_binary; null where the row has no value."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list:
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        flat = column.flatten()
        if flat.null_count:
            raise _refused(path, name, kind, "has a null in a list", "lists without nulls")
    else:
        lengths, flat = np.asarray(column.is_valid()).astype(np.int64), column.drop_null()
    missing = np.asarray(column.is_null())
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    try:
        values = _values(flat, path, name)
    except pa.ArrowInvalid as error:
        problem = "has a value beyond 64 bits"
        raise _refused(path, name, kind, problem) from error
    except pa.ArrowNotImplementedError:
        raise _refused(path, name, kind, "has a type that no feature has") from None
    ends = pa.array(offsets, pa.int64(), mask=np.append(missing, False))
    return pa.LargeListArray.from_arrays(ends, values)


def _values(values: pa.Array, path: str, name: str) -> pa.Array:
    """Values, none of them null, as int64, float32 or large_binary."""
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _values(values.dictionary_decode(), path, name)
    if isinstance(kind, pa.BaseExtensionType):
        return _values(values.storage, path, name)
    if types.is_null(kind):
        return values.cast(pa.float32())
    if types.is_boolean(kind) or types.is_integer(kind):
        return values.cast(pa.int64())
    if types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    whole = "[ns" not in str(kind)  # otherwise, the rest of a microsecond is dropped
    if types.is_timestamp(kind):
        return values.cast(pa.timestamp(MICROSECONDS, kind.tz), safe=whole).cast(pa.int64())
    if types.is_time(kind):
        return values.cast(pa.time64(MICROSECONDS), safe=whole).cast(pa.int64())
    if types.is_duration(kind):
        return values.cast(pa.duration(MICROSECONDS), safe=whole).cast(pa.int64())
    if types.is_decimal(kind):
        if kind.scale <= 0:
            return values.cast(pa.int64())
        return _values(values.cast(pa.float64()), path, name)
    if types.is_floating(kind):
        wide = values.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float32)
        if (np.isinf(narrow) & np.isfinite(wide)).any():
            problem = "has a number beyond 3.4e38, the largest float32"
            raise _refused(path, name, kind, problem, "smaller numbers, such as other units")
        return pa.array(narrow, pa.float32())
    if types.is_string(kind) or types.is_large_string(kind) or _is_binary(kind):
        return values.cast(pa.large_binary())
    raise pa.ArrowNotImplementedError(str(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _refused(
    path: str,
    name: str,
    kind: pa.DataType,
    problem: str,
    use: str = "whole numbers of 64 bits, numbers, texts, dates, times, or lists of them",
) -> UserError:
    return UserError(
        f"{path}: the column {name!r} of the type {kind} {problem}. Use {use}, or remove the "
        "column.",
        file=path,
        record=name,
        value=str(kind),
        suggestion=use,
    )


def files(exec_properties: Mapping[str, Any], pattern: str) -> list[str]:
    """Paths of a split's files, sorted.

    Raises:
        UserError: there are none.
    """
    full = FileSystems.join(exec_properties[INPUT_BASE_KEY], pattern)
    paths = sorted(found.path for found in FileSystems.match([full])[0].metadata_list)
    if not paths:
        raise UserError(f"{full}: no file has this name.", file=full, suggestion="another pattern")
    return paths


def opened(path: str) -> Any:
    """A stream of the bytes of a file, on any file system of Beam."""
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def unreadable(path: str, kind: str) -> UserError:
    """The refusal of a file; ``kind``: the format that it should have."""
    return UserError(
        f"{path}: cannot be read as {kind}. Write the file again, or remove it.",
        file=path,
        suggestion=kind,
    )


def check_same(found: Mapping[str, Mapping[str, str]]) -> None:
    """Refuses files of a split whose columns differ.

    Args:
        found: path -> :func:`features`.

    Raises:
        UserError: a column is not in all files, or not of one type.
    """
    (first, known), *others = found.items()
    for path, given in others:
        for name in sorted(known.keys() | given.keys()):
            both = [each.get(name, "absent") for each in (known, given)]
            if len({*both} - {"null"}) > 1:
                raise UserError(
                    f"{path}: the column {name!r} is {both[1]}, but in {first} it is {both[0]}. "
                    "Write all files of a split with the same columns and types.",
                    file=path,
                    record=name,
                    value=both[1],
                    suggestion=both[0],
                )
