"""CsvExampleGen for CSV as people have it: TFX's, with another reader.

TFX's reads UTF-8 without a byte order mark, separated by commas. It keeps the last of several
columns with one name, takes a column of numbers for text if a cell is ``NA``, and takes ``01234``
and ``2024_01`` for numbers, whose texts are then lost. :class:`PackagedCsvExampleGen` reads a
folder of an installed package.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx.components.example_gen.csv_example_gen import component, executor
from tfx.components.example_gen.driver import FileBasedDriver
from tfx.types.standard_component_specs import INPUT_BASE_KEY
from tfx_bsl.coders import csv_decoder
from tfx_bsl.coders.csv_decoder import ColumnInfo, ColumnType

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen.kinds import columns, csv_rows

_MISSING = frozenset(each.encode() for each in csv_rows.MISSING)
_TEXT = re.compile(rb"\s*[-+]?0\d+\s*|.*_.*", re.DOTALL)
"""Cells that Python reads as numbers, but that are texts, such as postal codes and dates."""


PREFIX = "package:"


class Executor(executor.Executor):
    """Reads CSV files; a Beam element is a file."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _csv


class CsvExampleGen(columns.TableExampleGen, component.CsvExampleGen):
    """Reads the CSV files that :mod:`csv_rows` describes.

    A column without a name is no feature. A cell such as ``NA`` among numbers is a missing value.
    """

    EXECUTOR = Executor


@beam.ptransform_fn
@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
def _csv(pipeline: Any, exec_properties: Mapping[str, Any], split_pattern: str) -> Any:
    paths = columns.files(exec_properties, split_pattern)
    found = {}
    for path in paths:
        with columns.opened(path) as stream:
            names = [name for name in csv_rows.read(stream, path).names if name]
        columns.check_names(names, path)
        found[path] = dict.fromkeys(names, "text")
    columns.check_same(found)
    names = [*found[paths[0]]]
    rows = (
        pipeline
        | beam.Create(paths)
        | beam.Reshuffle()
        | beam.FlatMap(functools.partial(_rows, names))
    )
    types = rows | beam.CombineGlobally(_Types(names, skip_blank_lines=True))
    return rows | "ToExample" >> beam.Map(_example, beam.pvalue.AsSingleton(types))


def _rows(names: Sequence[str], path: str) -> Iterator[list[bytes]]:
    """The cells of a file in the order of ``names``."""
    with columns.opened(path) as stream:
        given, rows = csv_rows.read(stream, path)
        places = [given.index(name) for name in names]
        for row in rows:
            yield [row[place].encode() for place in places]


class _Types(csv_decoder.ColumnTypeInferrer):
    """TFX's types of columns, but for missing cells and texts of digits among numbers."""

    def add_input(self, accumulator: Any, cells: list[bytes]) -> Any:
        """See TFX's class."""
        given = [b"" if _is_missing(each) else each for each in cells]
        return super().add_input(accumulator, [b"_" if _TEXT.fullmatch(c) else c for c in given])


def _is_missing(cell: bytes) -> bool:
    return cell.strip() in _MISSING


def _example(cells: Sequence[bytes], types: Sequence[ColumnInfo]) -> tf.train.Example:
    example = tf.train.Example()
    for cell, (name, kind) in zip(cells, types, strict=True):
        feature = example.features.feature[name]
        if kind == ColumnType.STRING:
            feature.bytes_list.value.extend([cell] if cell else [])
        elif kind == ColumnType.FLOAT:
            feature.float_list.value.extend([] if _is_missing(cell) else [float(cell)])
        elif kind == ColumnType.INT:
            feature.int64_list.value.extend([] if _is_missing(cell) else [int(cell)])
    return example


class Driver(FileBasedDriver):
    """Finds the folder on the machine of the step, where the package may be at another path."""

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *info: Any, **more: Any
    ) -> dict[str, Any]:
        """See TFX's class."""
        exec_properties[INPUT_BASE_KEY] = packaged_folder(exec_properties[INPUT_BASE_KEY])
        result: dict[str, Any] = super().resolve_exec_properties(exec_properties, *info, **more)
        return result


class PackagedCsvExampleGen(CsvExampleGen):
    """CsvExampleGen; ``input_base`` may be ``package:NAME/FOLDER``, a folder in a package."""

    DRIVER_CLASS = Driver


def packaged_folder(input_base: str) -> str:
    """The folder of ``package:NAME/FOLDER``; another path as it is.

    Raises:
        SettingError: there is no such package, or it has no such folder.
    """
    if not input_base.startswith(PREFIX):
        return input_base
    package, _, inside = input_base.removeprefix(PREFIX).partition("/")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # no parent package, or no name at all
        spec = None
    for root in (spec.submodule_search_locations if spec else None) or ():
        path = os.path.join(root, inside)
        if os.path.isdir(path):
            return path
    raise SettingError("data.source", input_base, "is not a folder of an installed package")
