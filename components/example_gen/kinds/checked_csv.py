"""TFX's CsvExampleGen, which keeps the last of several columns with one name: this one refuses."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from tfx.components.example_gen.csv_example_gen import component, executor
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

from stagecraft.components.example_gen.kinds import columns


class Executor(executor.Executor):
    """Reads the headers of all files before TFX's executor reads the files."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _Checked


class CsvExampleGen(component.CsvExampleGen):
    """Refuses a CSV file of which two columns have one name."""

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)


class _Checked(beam.PTransform):
    """TFX's reader, after the check."""

    def __init__(self, exec_properties: Mapping[str, Any], split_pattern: str):
        super().__init__()
        self._properties, self._pattern = exec_properties, split_pattern

    def expand(self, pipeline: Any) -> Any:
        for path in columns.files(self._properties, self._pattern):
            with FileSystems.open(path) as stream:
                header = stream.readline().decode("utf-8")
            columns.check_names(next(csv.reader(io.StringIO(header)), []), path)
        read = super(Executor, Executor()).GetInputSourceToExamplePTransform()
        return pipeline | read(self._properties, self._pattern)
