"""Runs before TFX looks into its cache: puts the content, not its path, into the cache key."""

from __future__ import annotations

from typing import Any

from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.portable import base_driver as portable_base_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2, pipeline_pb2

from stagecraft.components.example_gen import source
from stagecraft.components.metadata import outputs

FINGERPRINT = "fingerprint"
"""Execution property: SHA-256 of the content, hexadecimal."""


class Driver(base_driver.BaseDriver, portable_base_driver.BaseDriver):
    """Resolves the source, and replaces where it is by what it holds.

    TFX makes its cache key from the execution properties that this returns. The executor
    gets the originals back from :func:`given`.
    """

    def __init__(self, metadata_handle: metadata.Metadata) -> None:
        base_driver.BaseDriver.__init__(self, metadata_handle)
        portable_base_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns execution properties that differ exactly when the content does.

        Raises:
          UserError: the source is not there, or its download fails; an OutputExistsError: the
            output folder of this new execution holds files already.
        """
        # Here, not in the executor: if that fails, TFX removes the folder.
        if execution_info.pipeline_node is not None:  # elsewhere, an attempt may be repeated
            outputs.check_empty(execution_info.output_dict)
        fingerprint = source.resolve(execution_info.exec_properties).fingerprint()
        result = driver_output_pb2.DriverOutput()
        for name, value in given(execution_info.pipeline_node).items():
            neutral = type(value)()
            data_types_utils.set_metadata_value(result.exec_properties[name], neutral)
        data_types_utils.set_metadata_value(result.exec_properties[FINGERPRINT], fingerprint)
        return result


def given(node: pipeline_pb2.PipelineNode | None) -> dict[str, Any]:
    """The properties that say where the content is, as the pipeline's author gave them.

    Left out are those that get their value at run time: they keep it in the properties.
    """
    parameters = node.parameters.parameters if node is not None else {}
    return {
        name: data_types_utils.get_metadata_value(parameters[name].field_value)
        for name in source.PROPERTIES
        if name in parameters and parameters[name].HasField("field_value")
    }
