"""The driver of file-based ExampleGens of TFX whose pattern has spans."""

from __future__ import annotations

import posixpath
from typing import Any

from tfx.components.example_gen import driver as tfx_driver, utils
from tfx.orchestration.portable import data_types
from tfx.proto import example_gen_pb2
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import standard_component_specs as specs
from tfx.utils import proto_utils

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import driver, spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.spans import Span


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
