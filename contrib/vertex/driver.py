"""Runs a component's driver in Vertex AI's hook before the cache lookup.

TFX uses this hook only for the driver of a FileBasedExampleGen; its output has the same form.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.dsl.io import fileio
from tfx.orchestration import data_types_utils
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as tfx_utils
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.utils import import_utils

COMMAND = ("python", "-m", "stagecraft.contrib.vertex.driver")
INVOCATION = "--json_serialized_invocation_args"
DRIVER_CLASS = "--driver_class_path"


def main(arguments: list[str]) -> None:
    """Writes the properties that the driver adds or changes."""
    parser = argparse.ArgumentParser()
    parser.add_argument(DRIVER_CLASS, required=True)
    parser.add_argument(INVOCATION, required=True)
    options, _ = parser.parse_known_args(arguments)
    executor_input = json_format.Parse(
        options.json_serialized_invocation_args,
        pipeline_spec_pb2.ExecutorInput(),
        ignore_unknown_fields=True,
    )
    found = _run(options.driver_class_path, executor_input)
    output_file = executor_input.outputs.output_file
    fileio.makedirs(os.path.dirname(output_file))
    with fileio.open(output_file, "wb") as file:
        file.write(json_format.MessageToJson(found, sort_keys=True))


def _run(driver_class: str, executor_input: Any) -> Any:
    inputs = executor_input.inputs
    names: dict[int, str] = {}
    properties = tfx_utils.parse_execution_properties(inputs.parameter_values, inputs.parameters)
    outputs = tfx_utils.parse_raw_artifact_dict(executor_input.outputs.artifacts, names)
    driver = import_utils.import_class_by_path(driver_class)(None)
    found = driver.run(ExecutionInfo(exec_properties=dict(properties), output_dict=outputs))
    result = pipeline_spec_pb2.ExecutorOutput()
    for name, value in found.exec_properties.items():
        plain = data_types_utils.get_metadata_value(value)
        if plain == properties.get(name):
            continue
        if isinstance(plain, str):
            result.parameter_values[name].string_value = plain
        else:
            result.parameter_values[name].number_value = plain
    for name, artifacts in tfx_utils.translate_executor_output(outputs, names).items():
        result.artifacts[name].CopyFrom(artifacts)
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
