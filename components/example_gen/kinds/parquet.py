"""ParquetExampleGen: the rows of Parquet files, without loss of zeros and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import tensorflow as tf
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor

from stagecraft.components.example_gen.kinds import columns


class ParquetExecutor(BaseExampleGenExecutor):
    """Reads Parquet files; a Beam element is a row group."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _parquet


class ParquetExampleGen(columns.TableExampleGen):
    """Writes the rows of Parquet files as tf.Examples; see :mod:`columns` for the types."""

    EXECUTOR = ParquetExecutor


class _Groups(beam.DoFn):
    """Reads row groups ``(path, number)`` of Parquet files."""

    def process(self, element: tuple[str, int]) -> Iterator[tf.train.Example]:
        path, group = element
        with columns.opened(path) as stream:
            try:
                file = pa.parquet.ParquetFile(stream)
                for batch in file.iter_batches(columns.ROWS, row_groups=[group]):
                    yield from columns.examples(batch, path)
            except (pa.ArrowInvalid, OSError) as error:
                raise columns.unreadable(path, "Parquet") from error


@beam.ptransform_fn
@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
def _parquet(pipeline: Any, exec_properties: Mapping[str, Any], split_pattern: str) -> Any:
    groups, found = [], {}
    for path in columns.files(exec_properties, split_pattern):
        with columns.opened(path) as stream:
            try:
                file = pa.parquet.ParquetFile(stream)
                schema = file.schema_arrow
            except (pa.ArrowInvalid, OSError) as error:
                raise columns.unreadable(path, "Parquet") from error
            found[path] = columns.features(schema, path)
            groups += [(path, group) for group in range(file.num_row_groups)]
    columns.check_same(found)
    return pipeline | beam.Create(groups) | beam.Reshuffle() | beam.ParDo(_Groups())
