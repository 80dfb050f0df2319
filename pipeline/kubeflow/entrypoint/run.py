"""Runs a component's executor with TFX's code, and translates between backend and TFX."""

from __future__ import annotations

import argparse
import contextlib
import json
import posixpath
import tempfile
from collections.abc import Iterator

from google.protobuf import json_format
from tfx.dsl.io import fileio
from tfx.orchestration import data_types_utils
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor
from tfx.proto.orchestration import driver_output_pb2
from tfx.types.standard_artifacts import ModelBlessing
from tfx.utils import io_utils, name_utils

from stagecraft.components.object_store import beam_filesystem, permanent_uris, tensorflow_files
from stagecraft.components.parity_gate.component import ParityReport
from stagecraft.components.report import artifacts as report_artifacts
from stagecraft.pipeline import beam
from stagecraft.pipeline.beam.in_process import for_workers, runs_elsewhere
from stagecraft.pipeline.kubeflow.entrypoint import (
    addresses,
    blessed_models,
    local_values,
    manifests,
)
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation, Json
from stagecraft.pipeline.kubeflow.spec import DRIVER_OUTPUT

_BLESSED = "blessed"

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
        restored = local_values.restored(executor_class)
        rooted = beam.rooted(pipeline)
        beam_args = for_workers(beam_args)
        reduced = beam.reduced_overhead(beam_args)
        copied, compared = permanent_uris.copied(kept), manifests.compared()
        with beam.in_process(), reduced, rooted, copied, restored, compared:
            kubeflow_v2_run_executor._run_executor(arguments, beam_args)
        output = addresses.in_strings(invocation.output(), copies)
    for name, written in output.get("artifacts", {}).items():
        for artifact in written["artifacts"]:
            artifact["uri"] = uris["outputs"].get(name, artifact["uri"])
            artifact["metadata"] = driven.get(name, {}) | artifact.get("metadata", {})
            if file := artifact["metadata"].get(report_artifacts.FILE):  # KFP shows files alone
                artifact["uri"] = posixpath.join(artifact["uri"], file)
    invocation.write(output)
    _record_blessing(pipeline, invocation, output, uris["inputs"])


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
            value = invocation.parameters.pop(name, "")
            artifact = json.loads(value) if value else None
            if artifact is None:  # an input without artifacts
                continue
            uri = address = artifact["uri"]
            if not in_place:
                uri = posixpath.join(folder, name)
                copies[uri] = address
                copy = io_utils.copy_dir if fileio.isdir(address) else fileio.copy
                copy(address, uri)
            artifacts[name] = {
                "artifacts": [
                    {
                        "name": address,
                        "uri": uri,
                        "metadata": artifact["metadata"],
                        "type": {"instanceSchema": schema},
                    }
                ]
            }
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


def _record_blessing(
    pipeline: str, invocation: Invocation, output: Json, inputs: dict[str, str]
) -> None:
    """Records a blessed model for later runs; it is the input ``model`` of the component."""
    model = invocation.artifacts("inputs").get("model")
    for name, artifact in invocation.artifacts("outputs").items():
        if ModelBlessing.TYPE_NAME not in artifact["type"].get("instanceSchema", ""):
            continue
        [written] = output["artifacts"][name]["artifacts"]
        if model is not None and written["metadata"].get(_BLESSED) == 1:
            blessing = blessed_models.Artifact(uri=written["uri"], metadata=written["metadata"])
            blessed = blessed_models.Artifact(
                uri=inputs["model"], metadata=model.get("metadata", {})
            )
            blessed_models.record(pipeline, {"Model": blessed, "ModelBlessing": blessing})
