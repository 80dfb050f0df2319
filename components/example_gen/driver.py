"""Puts the content of the source, not its path, into TFX's cache key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.portable import base_driver as portable_base_driver, data_types
from tfx.proto.orchestration import driver_output_pb2, pipeline_pb2

from stagecraft.components.example_gen import source
from stagecraft.components.example_gen.content import Source
from stagecraft.components.metadata import outputs

FINGERPRINT = "fingerprint"  # execution property: SHA-256 of the content, hexadecimal


class Driver(base_driver.BaseDriver, portable_base_driver.BaseDriver):
    """Resolves the source, and replaces its path by a fingerprint of its content.

    TFX makes its cache key from the execution properties that the driver returns. The executor
    restores the original ones by :func:`original_properties`.
    """

    resolve: Callable[[Mapping[str, Any]], Source] = staticmethod(source.resolve)
    """Finds the source in execution properties."""

    def __init__(self, metadata_handle: metadata.Metadata) -> None:
        base_driver.BaseDriver.__init__(self, metadata_handle)
        portable_base_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns execution properties that differ exactly if the content differs."""
        # If the executor raised this, TFX would remove the folder.
        if execution_info.pipeline_node is not None:  # in a container, an attempt may be repeated
            outputs.check_empty(execution_info.output_dict)
        fingerprint = self.resolve(execution_info.exec_properties).fingerprint()
        result = driver_output_pb2.DriverOutput()
        original = original_properties(execution_info.pipeline_node)
        neutral = {name: type(value)() for name, value in original.items()}
        for name, value in (neutral | {FINGERPRINT: fingerprint}).items():
            data_types_utils.set_metadata_value(result.exec_properties[name], value)
        return result


def original_properties(node: pipeline_pb2.PipelineNode | None) -> dict[str, Any]:
    """The original values of the properties that locate the source.

    Runtime parameters are left out: the driver keeps their values.
    """
    parameters = node.parameters.parameters if node is not None else {}
    return {
        name: data_types_utils.get_metadata_value(parameters[name].field_value)
        for name in source.PROPERTIES
        if name in parameters and parameters[name].HasField("field_value")
    }
