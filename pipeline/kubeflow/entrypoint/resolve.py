"""The step before a component with a driver: runs the driver at run time."""

from __future__ import annotations

import logging

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as tfx_utils
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.utils import import_utils

from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import DRIVER_OUTPUT


def resolve(invocation: Invocation, driver_class: str, output_types: dict[str, str]) -> None:
    """Writes the output of a driver that needs no metadata store as an output parameter."""
    outputs = {
        name: pipeline_spec_pb2.ArtifactList(
            artifacts=[{"type": {"instance_schema": schema}, "name": name}]
        )
        for name, schema in output_types.items()
    }
    driver = import_utils.import_class_by_path(driver_class)(None)
    found = driver.run(
        ExecutionInfo(
            exec_properties=exec_properties(invocation),
            output_dict=tfx_utils.parse_raw_artifact_dict(outputs, {}),
        )
    )
    text = json_format.MessageToJson(found, indent=None, sort_keys=True)
    invocation.write({"parameterValues": {DRIVER_OUTPUT: text}})
    logging.info(text)


def exec_properties(invocation: Invocation) -> dict[str, int | float | str]:
    """The component's execution properties, as TFX reads them from the parameters."""
    executor_input = pipeline_spec_pb2.ExecutorInput()
    spec = pipeline_spec_pb2.ComponentInputsSpec()
    json_format.ParseDict(invocation.input, executor_input, ignore_unknown_fields=True)
    json_format.ParseDict(invocation.inputs_spec, spec, ignore_unknown_fields=True)
    parsed: dict[str, int | float | str] = tfx_utils.parse_execution_properties(
        executor_input.inputs.parameter_values, executor_input.inputs.parameters, spec
    )
    return parsed
