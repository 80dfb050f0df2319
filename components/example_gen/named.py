"""Makes the ExampleGen that settings name, with arguments of YAML.

A file-based ExampleGen of TFX whose pattern has spans gets a driver of its own.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import posixpath
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from tfx.components import CsvExampleGen, ImportExampleGen
from tfx.components.example_gen import driver as tfx_driver, utils
from tfx.components.example_gen.driver import FileBasedDriver
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec, ExecutorClassSpec
from tfx.orchestration.portable import data_types
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import standard_component_specs as specs
from tfx.utils import proto_utils

from stagecraft.common.errors import SettingError, nearest, said
from stagecraft.components.example_gen import driver, spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.kinds import avro, checked_csv, parquet, sequences
from stagecraft.components.example_gen.kinds.columns import ARGUMENTS
from stagecraft.components.example_gen.sample import fingerprint
from stagecraft.components.example_gen.spans import Span

CLASS = "data.example_gen"

_EXECUTOR, _CONFIG = "custom_executor_spec", "custom_config"

_TFX_EXECUTORS = "tfx.components.example_gen.custom_executors."

_LOSSY = {
    f"{_TFX_EXECUTORS}parquet_executor": parquet.ParquetExecutor,
    f"{_TFX_EXECUTORS}avro_executor": avro.AvroExecutor,
}
"""Modules of TFX's executors that write 0, False and empty texts as missing -> what does not."""

_SEQUENCES = "FORMAT_TF_SEQUENCE_EXAMPLE"

_ENUMS = {
    "payload_format": example_gen_pb2.PayloadFormat,
    "output_data_format": example_gen_pb2.PayloadFormat,
    "output_file_format": example_gen_pb2.FileFormat,
}


class FileDriver(tfx_driver.FileBasedDriver):
    """Finds the span, and leaves the rest to TFX's driver.

    Unlike TFX's driver, it takes spans in ``input_base``, too: the pattern of a folder, to which
    the patterns of the splits belong, or of the files of the only split. It names the spans that
    exist if one is missing, ignores other names, and takes numbers with zeros before them. How the
    span was chosen is no part of the cache key.
    """

    _span: Span
    _series: str

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *info: Any, **more: Any
    ) -> dict[str, Any]:
        """See TFX's class."""
        self._series = spans.series(exec_properties)
        config = example_gen_pb2.Input()
        proto_utils.json_to_proto(exec_properties[specs.INPUT_CONFIG_KEY], config)
        wanted = str(exec_properties.get(specs.RANGE_CONFIG_KEY) or spans.LATEST)
        folder = str(exec_properties[specs.INPUT_BASE_KEY])
        patterns = [posixpath.join(folder, split.pattern) for split in config.splits]
        if spans.has(folder):
            patterns = in_source(folder, [split.pattern for split in config.splits], wanted)
        self._span = found = spans.find(patterns, wanted)
        base = spans.base(folder) if spans.has(folder) else folder
        for split, pattern in zip(config.splits, found.patterns, strict=True):
            split.pattern = pattern.removeprefix(posixpath.join(base, ""))
        exec_properties |= {
            specs.INPUT_BASE_KEY: base or ".",
            specs.INPUT_CONFIG_KEY: proto_utils.proto_to_json(config),
            specs.RANGE_CONFIG_KEY: "",
        }
        result: dict[str, Any] = super().resolve_exec_properties(exec_properties, *info, **more)
        result |= {
            utils.SPAN_PROPERTY_NAME: found.number,
            utils.VERSION_PROPERTY_NAME: found.version,
        }
        return result

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """See TFX's class."""
        result: driver_output_pb2.DriverOutput = super().run(execution_info)
        for examples in result.output_artifacts[specs.EXAMPLES_KEY].artifacts:
            driver.describe(examples, self._span, self._series)
        return result


def in_source(source: str, patterns: list[str], wanted: str = spans.LATEST) -> list[str]:
    """The patterns of files of splits, of a source with spans.

    Args:
        source: pattern of a folder or of files.
        patterns: of the splits, in the folder.

    Raises:
        SettingError: the source names files, but there are several splits.
        MissingSpanError: there is no such span.
    """
    if all(map(files.is_folder, spans.find([source], wanted).paths)):
        return [posixpath.join(source, pattern) for pattern in patterns]
    if len(patterns) > 1:
        use = "the pattern of a folder, to which the patterns of the splits belong"
        raise SettingError("data.source", source, "names files, but there are several splits", use)
    return [source]


def make(
    path: str,
    arguments: Mapping[str, Any],
    source: Any,
    splits: example_gen_pb2.Output,
    span: Any = spans.LATEST,
) -> BaseComponent:
    """The component.

    Args:
        path: dotted path of the class, ``package.module.Class`` or ``package.module:Class``.
        arguments: of its constructor. A mapping becomes the proto that the component takes, a name
            the value of an enum, and ``custom_executor_spec`` is the dotted path of an executor.
        source: ``source`` or ``input_base``, if the class takes one and ``arguments`` have none.
            As ``input_base``, it is a folder, the only file of a folder, or a pattern of spans.
            None: there is none.
        splits: ``output_config``, if the class takes it and ``arguments`` have neither it nor the
            splits of ``input_config``.
        span: ``range_config``: ``latest``, a number, a date, or a runtime parameter.

    Raises:
        SettingError: there is no such class, or it does not take the arguments.
    """
    kind = find(path)
    kind = checked_csv.CsvExampleGen if kind is CsvExampleGen else kind
    if kind is ImportExampleGen and arguments.get("payload_format") == _SEQUENCES:
        # The components after TFX's read no SequenceExamples.
        arguments = {name: value for name, value in arguments.items() if name != "payload_format"}
        kind = sequences.SequenceExampleGen
    known = _arguments(kind)
    for name in arguments:
        if name not in known:
            problem = f"is not an argument of {path}"
            raise SettingError(ARGUMENTS, name, problem, nearest(name, known))
    given = {name: _argument(kind, name, value) for name, value in arguments.items()}
    for name in {"source", "input_base"} & set(known) - set(given):
        given |= _located(kind, name, source, given)
    if "output_config" in known and len(_splits(given)) < 2:
        given.setdefault("output_config", splits)
    _check_splits(given, [split.name for split in splits.split_config.splits])
    has_spans = any(map(spans.has, [_text(source), *(each.pattern for each in _splits(given))]))
    if has_spans and "range_config" in known:
        given |= _ranged(span, given)
    if _EXECUTOR in given and _CONFIG in known:
        # TFX's cache key has the name of an executor, not its code.
        executor = given[_EXECUTOR].executor_class
        given.setdefault(_CONFIG, fingerprint(f"{executor.__module__}:{executor.__qualname__}"))
    try:
        component: BaseComponent = kind(**given)
    except Exception as error:  # whatever the class raises
        raise SettingError(
            ARGUMENTS, dict(arguments), f"is refused by {path}: {said(error)}"
        ) from error
    if has_spans and component.driver_class is FileBasedDriver:
        component.driver_class = FileDriver
    if "examples" not in component.outputs:
        raise SettingError(
            CLASS,
            path,
            "has no output 'examples'",
            "a component such as tfx.components.CsvExampleGen",
        )
    return component


def _located(kind: Any, name: str, source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The argument ``name``; for a single file, its folder and a pattern."""
    if source is None:
        use = "the path of the folder with the data"
        raise SettingError("data.source", "sample", f"cannot be read by {kind.__name__}", use)
    is_file = name == "input_base" and isinstance(source, str) and os.path.isfile(source)
    if not is_file or "input_config" in given:
        return {name: source}
    folder, pattern = os.path.split(os.path.abspath(source))
    split = example_gen_pb2.Input.Split(name="single_split", pattern=pattern)
    return {"input_base": folder, "input_config": example_gen_pb2.Input(splits=[split])}


def _text(source: Any) -> Any:
    """A source; of a runtime parameter, its default."""
    return getattr(source, "default", source)


def _ranged(span: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The argument ``range_config`` that chooses a span."""
    if span == spans.LATEST or "range_config" in given:
        return {}
    if not isinstance(span, str):
        return {"range_config": span}
    number = spans.number_of(span)
    fixed = range_config_pb2.StaticRange(start_span_number=number, end_span_number=number)
    return {"range_config": range_config_pb2.RangeConfig(static_range=fixed)}


def _splits(given: Mapping[str, Any]) -> list[Any]:
    """The splits of the input."""
    return list(given["input_config"].splits) if "input_config" in given else []


def _arguments(kind: Any) -> list[str]:
    """Names of the arguments of a component's constructor."""
    # Not of the class: TFX's metaclass hides its constructor.
    given = list(inspect.signature(kind.__init__).parameters.values())[1:]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in given):  # by @component
        return list(kind.SPEC_CLASS.PARAMETERS)
    return [each.name for each in given]


def _check_splits(given: Mapping[str, Any], wanted: list[str]) -> None:
    """Refuses arguments whose splits are not those of the settings."""
    output = given.get("output_config")
    splits = (output.split_config.splits if output is not None else None) or _splits(given)
    names = [split.name for split in splits]
    for name in wanted if names else ():
        if name not in names:
            use = f"data.train_split, val_split and eval_split to name some of {', '.join(names)}"
            raise SettingError(ARGUMENTS, name, "is not a split of these arguments", use)


def find(path: str, setting: str = CLASS) -> Any:
    """The class of a dotted path.

    Raises:
        SettingError: there is none.
    """
    try:
        kind = pkgutil.resolve_name(path)
    except Exception as error:  # whatever the module raises
        use = "a dotted path such as tfx.components.CsvExampleGen"
        raise SettingError(setting, path, f"cannot be imported: {said(error)}", use) from error
    if not inspect.isclass(kind):
        raise SettingError(setting, path, "is not a class", "the dotted path of a class")
    return kind


def _argument(kind: Any, name: str, value: Any) -> Any:
    if name == _EXECUTOR:
        executor = find(value, f"{ARGUMENTS}.{name}")
        base = next((each for each in executor.__mro__ if each.__module__ in _LOSSY), None)
        if base is not None and base is not executor:
            problem = "writes 0, False and empty texts as missing values, as its base does"
            use = f"{base.__module__}.{base.__qualname__}, in whose place Stagecraft has its own"
            raise SettingError(f"{ARGUMENTS}.{name}", value, problem, use)
        executor = executor if base is None else _LOSSY[base.__module__]
        is_beam = issubclass(executor, BaseBeamExecutor)
        return (BeamExecutorSpec if is_beam else ExecutorClassSpec)(executor)
    if name in _ENUMS and isinstance(value, str):
        enum = _ENUMS[name]
        names = list(enum.keys())
        if value not in names:
            use = f"one of {', '.join(names)}"
            raise SettingError(f"{ARGUMENTS}.{name}", value, "does not exist", use)
        return enum.Value(value)
    parameter = kind.SPEC_CLASS.PARAMETERS.get(name)
    wanted: Any = getattr(parameter, "type", None)
    if isinstance(value, Mapping) and inspect.isclass(wanted) and issubclass(wanted, Message):
        try:
            return json_format.ParseDict(dict(value), wanted())
        except json_format.ParseError as error:
            use = f"the fields of {wanted.__name__}"
            raise SettingError(
                f"{ARGUMENTS}.{name}", value, f"does not fit the component: {error}", use
            ) from error
    return value
