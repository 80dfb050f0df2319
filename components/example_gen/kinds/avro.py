"""AvroExampleGen: the records of Avro files, without loss of zeros and types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import fastavro
import pyarrow as pa
import tensorflow as tf
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.kinds import columns
from stagecraft.components.example_gen.kinds.columns import MICROSECONDS


class AvroExecutor(BaseExampleGenExecutor):
    """Reads Avro files; a Beam element is a file."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _avro


class AvroExampleGen(columns.TableExampleGen):
    """Writes the records of Avro files as tf.Examples; see :mod:`columns` for the types."""

    EXECUTOR = AvroExecutor


@beam.ptransform_fn
@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
def _avro(pipeline: Any, exec_properties: Mapping[str, Any], split_pattern: str) -> Any:
    paths = columns.files(exec_properties, split_pattern)
    found = {}
    for path in paths:
        with columns.opened(path) as stream:
            schema = avro_schema(_reader(stream, path).writer_schema, path)
        found[path] = columns.features(schema, path)
    columns.check_same(found)
    return pipeline | beam.Create(paths) | beam.Reshuffle() | beam.FlatMap(_rows)


def names(stream: Any, path: str) -> list[str]:
    """The names of the fields of an Avro file's records."""
    found: list[str] = avro_schema(_reader(stream, path).writer_schema, path).names
    return found


def _rows(path: str) -> Iterator[tf.train.Example]:
    with columns.opened(path) as stream:
        reader = _reader(stream, path)
        schema = avro_schema(reader.writer_schema, path)
        records = _records(reader, path)
        while rows := list(itertools.islice(records, columns.ROWS)):
            yield from columns.examples(pa.RecordBatch.from_pylist(rows, schema), path)


def _reader(stream: Any, path: str) -> Any:
    try:
        return fastavro.reader(stream)
    except (ValueError, EOFError, StopIteration) as error:
        raise columns.unreadable(path, "Avro") from error


def _records(reader: Any, path: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield from reader
    except (ValueError, EOFError, IndexError, UnicodeDecodeError) as error:
        raise columns.unreadable(path, "Avro") from error


_AVRO_TYPES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}

_AVRO_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64(MICROSECONDS),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp(MICROSECONDS, "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp(MICROSECONDS),
    "uuid": pa.string(),
}


def avro_schema(record: Any, path: str) -> pa.Schema:
    """The columns of an Avro record, by the types of Avro 1.11.

    A union has the type of its only member besides null.

    Raises:
        UserError: the file does not hold records, or a field has another type.
    """
    if not isinstance(record, Mapping) or record.get("type") != "record":
        raise columns.unreadable(path, "Avro with records")
    fields = record["fields"]
    return pa.schema(
        [(each["name"], _avro_type(each["type"], each["name"], path)) for each in fields]
    )


def _avro_type(given: Any, name: str, path: str) -> pa.DataType:
    if isinstance(given, list):
        members = [each for each in given if each != "null"] or ["null"]
        if len(members) == 1:
            return _avro_type(members[0], name, path)
    elif isinstance(given, Mapping):
        logical = given.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(given["precision"], given.get("scale", 0))
        if logical in _AVRO_LOGICAL:
            return _AVRO_LOGICAL[logical]
        if given["type"] == "array":
            return pa.list_(_avro_type(given["items"], name, path))
        if given["type"] in _AVRO_TYPES:
            return _AVRO_TYPES[given["type"]]
    elif given in _AVRO_TYPES:
        return _AVRO_TYPES[given]
    raise UserError(
        f"{path}: the field {name!r} has the Avro type {given}, which no feature has. Use a "
        "number, a text, bytes, a date, a time, or an array of one of them, or remove the field.",
        file=path,
        record=name,
        value=str(given),
    )
