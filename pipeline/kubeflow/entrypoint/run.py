"""Runs a component's executor or driver with TFX's code; translates between backend and TFX."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import logging
import posixpath
import tempfile
from collections.abc import Callable, Collection, Iterator
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.dsl.component.experimental import json_compat
from tfx.dsl.component.experimental.annotations import Parameter
from tfx.dsl.io import fileio
from tfx.orchestration import data_types_utils
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.kubeflow.v2.container import (
    kubeflow_v2_entrypoint_utils as tfx_utils,
    kubeflow_v2_run_executor,
)
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import Artifact
from tfx.types.standard_artifacts import ExampleAnomalies, ModelBlessing, PushedModel
from tfx.types.value_artifact import ValueArtifact
from tfx.utils import import_utils, io_utils, name_utils

from stagecraft.components.anomaly_gate import EARLIER
from stagecraft.components.metadata import manifest
from stagecraft.components.object_store import beam_filesystem, location, tensorflow_files
from stagecraft.components.parity_gate.component import ParityReport
from stagecraft.components.report import artifacts as report_artifacts, earlier_models
from stagecraft.pipeline import beam
from stagecraft.pipeline.beam.in_process import for_workers, runs_elsewhere
from stagecraft.pipeline.kubeflow.entrypoint import addresses, records
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import DRIVER_OUTPUT, Json

Artifacts = dict[str, list[Artifact]]

_VERDICTS = {
    ModelBlessing.TYPE_NAME: ("blessed", 1, "model", records.BLESSED),
    PushedModel.TYPE_NAME: ("pushed", 1, "model", records.PUSHED),
    ExampleAnomalies.TYPE_NAME: ("anomalies", 0, "statistics", records.CHECKED),
}
"""Type of an output -> its property and value that say that an input is good, the input, and the
folder of the records."""

RESULTS = "span_results"
"""Folder of the results of models on their spans, below the pipeline's address."""

# TFX's entrypoint finds the classes of artifact types here; it imports other names.
compiler_utils.TITLE_TO_CLASS_PATH.update(
    {
        kind.TYPE_NAME: name_utils.get_full_name(kind)
        for kind in (ParityReport, *report_artifacts.TYPES)
    }
)

assert beam_filesystem  # the import registers minio:// with Beam


def run(
    invocation: Invocation,
    pipeline: str,
    executor_class: str,
    resolved: dict[str, str],
    beam_args: list[str],
) -> None:
    """Runs the executor and writes its output.

    Args:
        invocation: from the backend; changes.
        pipeline: address of the pipeline's data.
        executor_class: dotted path.
        resolved: schemas of input artifacts that come as parameters, by name.
    """
    uris = {
        side: {name: artifact["uri"] for name, artifact in invocation.artifacts(side).items()}
        for side in ("inputs", "outputs")
    }
    _restore_types(invocation)
    remote = runs_elsewhere(executor_class, beam_args)
    if remote:
        tensorflow_files.install()
        for address in uris["outputs"].values():
            if fileio.exists(address):  # left by a failed attempt
                fileio.rmtree(address)
    with _resolved(invocation, resolved, in_place=remote) as copies:
        driven = _take_driver_output(invocation)
        kept = dict(copies)
        for side in () if remote else uris:
            for artifact in invocation.artifacts(side).values():
                address, artifact["uri"] = artifact["uri"], addresses.to_local(artifact["uri"])
                kept.setdefault(artifact["uri"], address)
        arguments = argparse.Namespace(
            executor_class_path=executor_class,
            json_serialized_invocation_args=json.dumps(invocation.input),
            json_serialized_inputs_spec_args=json.dumps(invocation.inputs_spec),
        )
        beam_args = for_workers(beam_args)
        with (
            beam.in_process(),
            beam.reduced_overhead(beam_args),
            beam.rooted(pipeline),
            location.copied(kept),
            earlier_models.shared(posixpath.join(pipeline, RESULTS)),
            restored_values(executor_class),
            _compared(),
        ):
            kubeflow_v2_run_executor._run_executor(arguments, beam_args)
        output = addresses.in_strings(invocation.output(), copies)
    for name, written in output.get("artifacts", {}).items():
        for artifact in written["artifacts"]:
            artifact["uri"] = uris["outputs"].get(name, artifact["uri"])
            artifact["metadata"] = driven.get(name, {}) | artifact.get("metadata", {})
            if file := artifact["metadata"].get(report_artifacts.FILE):  # KFP shows files alone
                artifact["uri"] = posixpath.join(artifact["uri"], file)
    invocation.write(output)
    _record_verdicts(pipeline, invocation, output, uris["inputs"], resolved)


def resolve(invocation: Invocation, driver_class: str, output_types: dict[str, str]) -> None:
    """Runs a driver that needs no metadata store; writes its output as an output parameter.

    Args:
        driver_class: dotted path.
        output_types: schemas of the component's output artifacts, by name.
    """
    executor_input = pipeline_spec_pb2.ExecutorInput()
    spec = pipeline_spec_pb2.ComponentInputsSpec()
    json_format.ParseDict(invocation.input, executor_input, ignore_unknown_fields=True)
    json_format.ParseDict(invocation.inputs_spec, spec, ignore_unknown_fields=True)
    inputs = executor_input.inputs
    outputs = {
        name: pipeline_spec_pb2.ArtifactList(
            artifacts=[{"type": {"instance_schema": schema}, "name": name}]
        )
        for name, schema in output_types.items()
    }
    found = import_utils.import_class_by_path(driver_class)(None).run(
        ExecutionInfo(
            exec_properties=tfx_utils.parse_execution_properties(
                inputs.parameter_values, inputs.parameters, spec
            ),
            output_dict=tfx_utils.parse_raw_artifact_dict(outputs, {}),
        )
    )
    text = json_format.MessageToJson(found, indent=None, sort_keys=True)
    invocation.write({"parameterValues": {DRIVER_OUTPUT: text}})
    logging.info(text)


def _restore_types(invocation: Invocation) -> None:
    """Restores types: the backend sends ``type: {instanceSchema: ""}``."""
    specs = invocation.inputs_spec.get("artifacts", {})
    for name, artifact in invocation.artifacts("inputs").items():
        if not any(artifact.get("type", {}).values()):
            artifact["type"] = specs[name]["artifactType"]


@contextlib.contextmanager
def _resolved(
    invocation: Invocation, schemas: dict[str, str], *, in_place: bool
) -> Iterator[dict[str, str]]:
    """Turns parameters into input artifacts; yields folders -> addresses of their local copies.

    With ``in_place``, they have no copies.
    """
    with tempfile.TemporaryDirectory(prefix="stagecraft-inputs-") as folder:
        copies = {}
        artifacts = invocation.input.setdefault("inputs", {}).setdefault("artifacts", {})
        for name, schema in schemas.items():
            artifacts[name] = {"artifacts": []}
            for number, artifact in enumerate(invocation.take_resolved(name)):
                uri = address = artifact["uri"]
                if not in_place:
                    uri = posixpath.join(folder, f"{name}-{number}" if number else name)
                    copies[uri] = address
                    copy = io_utils.copy_dir if fileio.isdir(address) else fileio.copy
                    copy(address, uri)
                artifacts[name]["artifacts"].append(
                    {
                        "name": address,
                        "uri": uri,
                        "metadata": artifact["metadata"],
                        "type": {"instanceSchema": schema},
                    }
                )
            if not artifacts[name]["artifacts"]:  # an input without artifacts
                del artifacts[name]
        yield copies


def _take_driver_output(invocation: Invocation) -> dict[str, Json]:
    """Adds the driver's output to the parameters; returns metadata of output artifacts, by name."""
    text = invocation.parameters.pop(DRIVER_OUTPUT, "")
    found = json_format.Parse(text or "{}", driver_output_pb2.DriverOutput())
    types = invocation.inputs_spec.setdefault("parameters", {})
    for name, value in found.exec_properties.items():
        plain = data_types_utils.get_metadata_value(value)
        invocation.parameters[name] = plain
        if isinstance(plain, int):
            types[name] = {"parameterType": "NUMBER_INTEGER"}
    metadata: dict[str, Json] = {}
    for name, artifacts in found.output_artifacts.items():
        for artifact in artifacts.artifacts:
            metadata[name] = {
                key: data_types_utils.get_metadata_value(value)
                for key, value in artifact.custom_properties.items()
            }
    for name, artifact in invocation.artifacts("outputs").items():
        artifact["metadata"] = artifact.get("metadata", {}) | metadata.get(name, {})
    return metadata


def _record_verdicts(
    pipeline: str,
    invocation: Invocation,
    output: Json,
    inputs: dict[str, str],
    resolved: Collection[str],
) -> None:
    """Records a blessed or pushed model, or checked statistics, for later runs.

    Statistics only of a gate that compares them with earlier ones.
    """
    given = invocation.artifacts("inputs")
    for name, artifact in invocation.artifacts("outputs").items():
        for kind, (property_, value, key, folder) in _VERDICTS.items():
            if key not in given or kind not in artifact["type"].get("instanceSchema", ""):
                continue
            [written] = output["artifacts"][name]["artifacts"]
            is_compared = folder != records.CHECKED or EARLIER in resolved
            if written["metadata"].get(property_) != value or not is_compared:
                continue
            verdict = records.Artifact(uri=written["uri"], metadata=written["metadata"])
            subject = records.Artifact(uri=inputs[key], metadata=given[key].get("metadata", {}))
            subject_kind = records.SUBJECTS[folder]
            records.record(pipeline, {subject_kind: subject, kind: verdict}, folder)


@contextlib.contextmanager
def restored_values(executor_class: str) -> Iterator[None]:
    """In this block, an executor gets the values that TFX's local operator gives it.

    TFX's entrypoint for Vertex reads no ``ValueArtifact``, and passes each parameter as the
    compiled pipeline has it: a bool as a number, a list or dict as JSON.

    Args:
        executor_class: dotted path of the executor that runs.
    """
    types = _parameter_types(import_utils.import_class_by_path(executor_class))
    artifacts, properties = tfx_utils.parse_raw_artifact_dict, tfx_utils.parse_execution_properties

    def read(*args: Any, **kwargs: Any) -> Artifacts:
        found: Artifacts = artifacts(*args, **kwargs)
        for values in found.values():
            for value in values:
                if isinstance(value, ValueArtifact) and fileio.exists(value.uri):
                    value.read()
        return found

    def convert(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = properties(*args, **kwargs)
        return {
            name: types[name](value) if name in types else value for name, value in found.items()
        }

    tfx_utils.parse_raw_artifact_dict = read
    tfx_utils.parse_execution_properties = convert
    try:
        yield
    finally:
        tfx_utils.parse_raw_artifact_dict = artifacts
        tfx_utils.parse_execution_properties = properties


def _parameter_types(executor: type) -> dict[str, Callable[[Any], Any]]:
    """Conversions of the parameters of a function with ``@component``, by name."""
    function = getattr(executor, "_FUNCTION", None)
    if function is None:
        return {}
    conversions: dict[str, Callable[[Any], Any]] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if not isinstance(parameter.annotation, Parameter):
            continue  # an artifact, or its value
        kind = parameter.annotation.type
        if kind is bool:
            conversions[name] = bool
        elif json_compat.is_json_compatible(kind):
            conversions[name] = _from_json
    return conversions


def _from_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@contextlib.contextmanager
def _compared() -> Iterator[None]:
    """In this block, TFX's entrypoint compares inputs with their manifests, and describes outputs.

    It compares them before and after the executor.

    Raises:
        DamagedArtifactError: an input is damaged, or became so while the executor read it.
    """
    read, write = tfx_utils.parse_raw_artifact_dict, tfx_utils.translate_executor_output
    parsed: list[Artifacts] = []  # inputs, then outputs

    def parse(*args: Any, **kwargs: Any) -> Artifacts:
        found: Artifacts = read(*args, **kwargs)
        if not parsed:
            manifest.check(found, _remedy)
        parsed.append(found)
        return found

    def translate(outputs: Artifacts, *args: Any, **kwargs: Any) -> Any:
        manifest.check(parsed[0], _remedy)
        for artifacts in outputs.values():
            for artifact in artifacts:
                # The backend records such an artifact as a file, without its folder.
                if not artifact.has_custom_property(report_artifacts.FILE):
                    manifest.add(artifact.mlmd_artifact, artifact.type_name)
        return write(outputs, *args, **kwargs)

    tfx_utils.parse_raw_artifact_dict = parse
    tfx_utils.translate_executor_output = translate
    try:
        yield
    except Exception:
        manifest.check(
            parsed[0] if parsed else {}, _remedy, thorough=True
        )  # the cause, if it fails
        raise
    finally:
        tfx_utils.parse_raw_artifact_dict = read
        tfx_utils.translate_executor_output = write


def _remedy(artifact: Artifact) -> tuple[str, str]:
    del artifact
    return (
        "Restore its files; or run the pipeline under another name, which reuses no cached result."
    ), "--set name=…"
