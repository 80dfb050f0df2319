"""WindowExampleGen: windows over time series, from files with a row for each point in time."""

from __future__ import annotations

import bisect
import datetime
import functools
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow.parquet
import tensorflow as tf
from google.protobuf import json_format, wrappers_pb2
from tfx.components.example_gen import utils
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs as specs

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen.kinds import avro, checked_csv, columns, csv_rows, parquet
from stagecraft.components.example_gen.kinds.columns import ARGUMENTS
from stagecraft.components.example_gen.sample import custom_config
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint

_KINDS = {"int64_list": None, "float_list": math.nan, "bytes_list": b""}
"""Kind of a feature -> the value that stands for a gap in a list; None: there is none."""


class _Windows(NamedTuple):
    """Arguments of the component."""

    time: str
    label: str
    length: int
    horizon: int
    stride: int
    series: Sequence[str]
    time_format: str | None
    last: Sequence[str] = ()

    @property
    def named(self) -> list[tuple[str, str]]:
        """Arguments, and the columns that they name."""
        several = [(each, name) for each in ("series", "last") for name in getattr(self, each)]
        return [("time", self.time), ("label", self.label), *several]

    @property
    def next(self) -> str:
        """Name of the feature to predict."""
        return f"{self.label}_next"


class WindowExecutor(BaseExampleGenExecutor):
    """Reads Parquet, Avro or CSV files, and writes windows of their rows."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _Read

    def GenerateExamplesByBeam(
        self, pipeline: Any, exec_properties: dict[str, Any]
    ) -> dict[str, Any]:
        """Splits by time: each split has later labels than the one before it."""
        source = json_format.Parse(exec_properties[specs.INPUT_CONFIG_KEY], example_gen_pb2.Input())
        output = json_format.Parse(
            exec_properties[specs.OUTPUT_CONFIG_KEY], example_gen_pb2.Output()
        )
        given = _arguments_of(exec_properties)
        windows = {
            split.name: pipeline | f"Read[{split.name}]" >> _Read(exec_properties, split.pattern)
            | f"Window[{split.name}]" >> _Window(given)
            for split in source.splits
        }  # fmt: skip
        splits = output.split_config.splits
        if not splits:
            return {
                name: each | f"Values[{name}]" >> beam.Values() for name, each in windows.items()
            }
        [found] = windows.values()
        times = found | beam.Keys() | beam.Distinct() | beam.combiners.ToList()
        shares = [split.hash_buckets for split in splits]
        starts = beam.pvalue.AsSingleton(times | beam.Map(_starts, shares))
        parts = found | beam.Partition(_part, len(shares), starts)
        names = utils.generate_output_split_names(source, output)
        return {
            name: part | f"Values[{name}]" >> beam.Values()
            for name, part in zip(names, parts, strict=True)
        }


class WindowExampleGen(FileBasedExampleGen):
    """Writes an example for each window of ``length`` rows of a time series.

    A column becomes a feature with the values of these rows, the oldest first; ``time`` and the
    columns ``last`` are those of the last row. The feature ``LABEL_next`` is the value of the
    column ``label`` ``horizon`` rows later. Splits follow each other in time, in the shares of
    their hash buckets. A worker holds all rows of a series in memory.
    """

    def __init__(
        self,
        input_base: Any = None,
        time: str = "",
        label: str = "",
        length: int = 10,
        horizon: int = 1,
        stride: int = 1,
        series: Sequence[str] = (),
        time_format: str | None = None,
        last: Sequence[str] = (),
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
    ) -> None:
        """Takes the folder of Parquet, Avro or CSV files, and the shape of a window.

        Args:
            time: column that orders the rows: numbers, or texts of ``time_format``.
            label: column to predict.
            length: rows of a window.
            horizon: rows from the last one of the window to the label.
            stride: rows from a window to the next one.
            series: columns that tell series apart, each with its own rows in time.
            time_format: of ``datetime.strptime``; None: ISO 8601.
            last: columns of which a window has one value, that of its last row, such as a weight.

        Raises:
            SettingError: an argument is invalid.
        """
        for name, value in (("time", time), ("label", label)):
            if not value or not isinstance(value, str):
                raise SettingError(f"{ARGUMENTS}.{name}", value, "is no column", "its name")
        for name, least, size in (
            ("length", 2, length),
            ("horizon", 1, horizon),
            ("stride", 1, stride),
        ):
            if not isinstance(size, int) or size < least:
                problem = f"is not a whole number of {least} or more"
                raise SettingError(f"{ARGUMENTS}.{name}", size, problem, str(least))
        if isinstance(series, str) or time in series or label in series:
            use = "a list of other columns than time and label"
            raise SettingError(f"{ARGUMENTS}.series", series, "does not name the series", use)
        if isinstance(last, str):
            raise SettingError(f"{ARGUMENTS}.last", last, "is not a list", f"[{last}]")
        parts = list(series), time_format, list(last)
        given = _Windows(time, label, length, horizon, stride, *parts)
        text = json.dumps([given._asdict(), code_fingerprint(__name__)], sort_keys=True)
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            range_config=range_config,
            custom_config=custom_config(text),
            custom_executor_spec=BeamExecutorSpec(WindowExecutor),
        )


def _arguments_of(exec_properties: Mapping[str, Any]) -> _Windows:
    config = json_format.Parse(
        exec_properties[specs.CUSTOM_CONFIG_KEY], example_gen_pb2.CustomConfig()
    )
    packed = wrappers_pb2.StringValue()
    config.custom_config.Unpack(packed)
    return _Windows(**json.loads(packed.value)[0])


class _Read(beam.PTransform):
    """Rows of files of one format, which their first bytes tell."""

    def __init__(self, exec_properties: Mapping[str, Any], pattern: str):
        super().__init__()
        self._properties, self._pattern = exec_properties, pattern

    def expand(self, pipeline: Any) -> Any:
        given = _arguments_of(self._properties)
        executors = {}
        for path in columns.files(self._properties, self._pattern):
            executor, names = _format(path)
            executors[path] = executor
            if given.next in names:
                problem = f"gives the feature {given.next}, but {path} has a column of this name"
                use = f"another name for the column {given.next}"
                raise SettingError(f"{ARGUMENTS}.label", given.label, problem, use)
            for argument, name in given.named:
                if name not in names:
                    problem = f"is no column of {path}"
                    use = f"one of {', '.join(names)}"
                    raise SettingError(f"{ARGUMENTS}.{argument}", name, problem, use)
        kinds = set(executors.values())
        if len(kinds) > 1:
            path = next(iter(executors))
            use = "files of one format"
            raise UserError(
                f"{path}: other files have another format; use {use}", file=path, suggestion=use
            )
        [executor] = kinds
        read = executor().GetInputSourceToExamplePTransform()
        return pipeline | read(self._properties, self._pattern)


def _format(path: str) -> tuple[type[BaseExampleGenExecutor], Sequence[str]]:
    """The executor that reads a file, and the names of its columns."""
    with columns.opened(path) as stream:
        magic = stream.read(4)
        stream.seek(0)
        if magic == b"PAR1":
            return parquet.ParquetExecutor, pyarrow.parquet.read_schema(stream).names
        if magic == b"Obj\x01":
            return avro.AvroExecutor, avro.names(stream, path)
        return checked_csv.Executor, csv_rows.read(stream, path).names


class _Window(beam.PTransform):
    """Rows -> ``(time of the label, window)``."""

    def __init__(self, given: _Windows):
        super().__init__()
        self._given = given

    def expand(self, rows: Any) -> Any:
        given = self._given
        return (
            rows
            | beam.Map(functools.partial(_keyed, given.series))
            | beam.GroupByKey()
            | beam.FlatMapTuple(functools.partial(_windows, given))
        )


def _keyed(series: Sequence[str], row: tf.train.Example) -> tuple[bytes, bytes]:
    parts = [row.features.feature[name].SerializeToString(deterministic=True) for name in series]
    return repr(parts).encode(), row.SerializeToString()


def _windows(
    given: _Windows, series: bytes, rows: Iterable[bytes]
) -> Iterator[tuple[float, tf.train.Example]]:
    examples = [tf.train.Example.FromString(row) for row in rows]
    timed = sorted(((_time(given, each), each) for each in examples), key=lambda pair: pair[0])
    for (time, _), (following, row) in itertools.pairwise(timed):
        if time == following:
            shown = _values(row, given.time)[1]
            where = f"; name the columns that tell series apart in {ARGUMENTS}.series"
            raise UserError(
                f"{ARGUMENTS}.time: two rows of a series have the time {shown[0]!r} in the column "
                f"{given.time!r}{where}",
                setting=f"{ARGUMENTS}.series",
                value=list(given.series),
                record=given.time,
                suggestion="the columns that tell series apart",
            )
    names = sorted({name for each in examples for name in each.features.feature})
    single = (given.time, *given.series, *given.last)
    listed = [name for name in names if name not in single]
    for start in range(0, len(timed) - given.length - given.horizon + 1, given.stride):
        window = [row for _, row in timed[start : start + given.length]]
        time, target = timed[start + given.length + given.horizon - 1]
        label = target.features.feature[given.label]
        if not label.WhichOneof("kind") or not _values(target, given.label)[1]:
            continue
        made = tf.train.Example()
        for name in single:
            made.features.feature[name].CopyFrom(window[-1].features.feature[name])
        for name in listed:
            kind, values = _listed(name, window)
            if kind:
                getattr(made.features.feature[name], kind).value.extend(values)
        made.features.feature[given.next].CopyFrom(label)
        yield time, made


def _values(row: tf.train.Example, name: str) -> tuple[str | None, list[Any]]:
    feature = row.features.feature[name]
    kind = feature.WhichOneof("kind")
    return kind, list(getattr(feature, kind).value) if kind else []


def _listed(name: str, rows: Sequence[tf.train.Example]) -> tuple[str | None, list[Any]]:
    """Kind and values of a column in the rows of a window, with a value for each gap."""
    found = [_values(row, name) for row in rows]
    kind = next((kind for kind, _ in found if kind), None)
    if kind is None:
        return None, []
    values = []
    for _, given in found:
        if len(given) > 1:
            problem, use = "has several values in a row", "one value in each row"
            raise UserError(
                f"the column {name!r} {problem}; use {use}", record=name, suggestion=use
            )
        if not given and _KINDS[kind] is None:
            problem, use = "has a gap among whole numbers", "decimal numbers, or no gaps"
            raise UserError(
                f"the column {name!r} {problem}; use {use}", record=name, suggestion=use
            )
        values.append(given[0] if given else _KINDS[kind])
    return kind, values


def _time(given: _Windows, row: tf.train.Example) -> float:
    """The time of a row as a number."""
    _, values = _values(row, given.time)
    value = values[0] if values else None
    if isinstance(value, (int, float)) and value == value:
        return value
    text = value.decode(errors="replace") if isinstance(value, bytes) else ""
    form = given.time_format
    try:
        moment = (
            datetime.datetime.fromisoformat(_LETTER_Z.sub("+00:00", text))
            if form is None
            else datetime.datetime.strptime(text, form)
        )
    except ValueError:
        use = "its format, such as %d.%m.%Y"
        raise UserError(
            f"{ARGUMENTS}.time_format: {form or 'ISO 8601'} is not the format of {text!r} in the "
            f"column {given.time!r}; use {use}",
            setting=f"{ARGUMENTS}.time_format",
            value=form,
            record=given.time,
            suggestion=use,
        ) from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)
    return zoned.timestamp()


_LETTER_Z = re.compile("[zZ]$")
"""UTC, which Python reads from 3.11 on."""


def _starts(times: Sequence[float], shares: Sequence[int]) -> list[float]:
    """The first time of each split but the first one; infinite: it has none.

    Args:
        times: of all labels, each once.
    """
    ordered = [*sorted(times), math.inf]
    *ends, total = itertools.accumulate(shares)
    return [ordered[-(-end * len(times) // total)] for end in ends]


def _part(window: tuple[float, Any], count: int, starts: Sequence[float]) -> int:
    """The split of a window, by the time of its label."""
    return bisect.bisect_right(starts, window[0])
