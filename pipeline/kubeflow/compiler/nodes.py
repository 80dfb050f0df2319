"""Replaces nodes that the backend does not run: it runs containers and nothing else."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import base_driver
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution import resolver_op
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.types.channel import BaseChannel, OutputChannel
from tfx.types.resolved_channel import ResolvedChannel
from tfx.types.standard_artifacts import Model
from tfx.utils import name_utils

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.spec import Json


def driver_of(node: Any) -> str | None:
    """Dotted path of a component's driver; None: it has the default one."""
    driver = node.driver_class if isinstance(node, BaseComponent) else base_driver.BaseDriver
    return None if driver is base_driver.BaseDriver else name_utils.get_full_name(driver)


def add_driver(spec: Json, node: Any, image: str) -> str:
    """Adds a step before the node that runs its driver; returns the name.

    It is never cached: the driver reads span, version and fingerprint of the data at run time.
    """
    [step] = [step for step in specs.steps(spec) if step.name == node.id]
    assert step.container is not None
    step.container.pop("lifecycle", None)
    name = _unused_name(spec, f"{node.id}-inputs")  # the backend uses "-driver"
    outputs = {
        key: definition["artifactType"]["instanceSchema"]
        for key, definition in step.component["outputDefinitions"]["artifacts"].items()
    }
    specs.add(
        spec,
        name,
        image=image,
        args=[
            specs.RESOLVE,
            "--driver_class_path",
            str(driver_of(node)),
            "--output_types",
            json.dumps(outputs, sort_keys=True),
            "--json_serialized_invocation_args",
            "{{$}}",
        ],
        task={
            "inputs": {"parameters": copy.deepcopy(specs.inputs(step, "parameters"))},
            **{key: list(step.task[key]) for key in ("dependentTasks",) if key in step.task},
        },
        component={
            "inputDefinitions": {"parameters": copy.deepcopy(specs.parameters(step))},
            "outputDefinitions": {"parameters": {specs.DRIVER_OUTPUT: {"parameterType": "STRING"}}},
        },
    )
    specs.parameters(step)[specs.DRIVER_OUTPUT] = {"parameterType": "STRING"}
    specs.inputs(step, "parameters")[specs.DRIVER_OUTPUT] = specs.from_task(
        name, specs.DRIVER_OUTPUT
    )
    specs.depend(step, name)
    return name


def _unused_name(spec: Json, name: str) -> str:
    """The name, with a number if a component of the user has it."""
    names = spec["root"]["dag"]["tasks"]
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in names)


def add_resolver(spec: Json, node: resolver.Resolver, image: str) -> None:
    """Replaces the resolver with an uncached step that looks up the latest blessed model.

    Its outputs are parameters (an address and properties, or nothing), not artifacts: a new
    artifact in each run would be a new input of later steps, and prevent their caching.
    """
    candidates = {
        f"candidate_{index}": channel
        for index, channel in enumerate(_produced(node))
        if issubclass(channel.type, Model)
    }
    types = {name: channel.type.TYPE_NAME for name, channel in node.outputs.items()}
    specs.add(
        spec,
        node.id,
        image=image,
        args=[
            specs.LATEST_BLESSED,
            "--output_types",
            json.dumps(types, sort_keys=True),
            "--json_serialized_invocation_args",
            "{{$}}",
        ],
        task={
            "inputs": {
                "artifacts": {
                    name: {
                        "taskOutputArtifact": {
                            "producerTask": channel.producer_component_id,
                            "outputArtifactKey": channel.output_key,
                        }
                    }
                    for name, channel in candidates.items()
                },
            },
            "dependentTasks": sorted(
                {channel.producer_component_id for channel in candidates.values()}
                | {upstream.id for upstream in node.upstream_nodes}
            ),
        },
        component={
            "inputDefinitions": {
                "artifacts": {
                    name: {"artifactType": _type(channel)} for name, channel in candidates.items()
                }
            },
            "outputDefinitions": {
                "parameters": {name: {"parameterType": "STRING"} for name in types},
                # For people: the UI shows artifacts, not parameters.
                "artifacts": {specs.LOOKUP: {"artifactType": {"schemaTitle": "system.Artifact"}}},
            },
        },
    )
    for step in list(specs.steps(spec)):
        _take_parameters(step, node.id)


def _take_parameters(step: specs.Step, producer: str) -> None:
    """Turns input artifacts of a resolver into input parameters."""
    resolved = {}
    sources = step.task.get("inputs", {}).get("artifacts", {})
    for name, source in list(sources.items()):
        output = source.get("taskOutputArtifact", {})
        if output.get("producerTask") != producer:
            continue
        del sources[name]
        definition = specs.artifacts(step).pop(name)
        resolved[name] = definition["artifactType"]["instanceSchema"]
        specs.parameters(step)[name] = {"parameterType": "STRING"}
        specs.inputs(step, "parameters")[name] = specs.from_task(
            producer, output["outputArtifactKey"]
        )
    if not resolved:
        return
    if not specs.is_ours(step):
        raise UserError(
            f"{step.name}: reads {', '.join(map(repr, resolved))} from the resolver {producer!r}. "
            "On Kubeflow, only a Python executor can read it, not a container component.",
            record=step.name,
        )
    args = step.executor["container"]["args"]
    if specs.RESOLVED_INPUTS in args:
        position = args.index(specs.RESOLVED_INPUTS) + 1
        args[position] = json.dumps(json.loads(args[position]) | resolved, sort_keys=True)
    else:
        args += [specs.RESOLVED_INPUTS, json.dumps(resolved, sort_keys=True)]


def name_producers(spec: Json) -> None:
    """Corrects producers, to which TFX adds ``_task``, and types, which TFX calls STRING."""
    names = {step.name: step for step in specs.steps(spec)}
    for step in specs.steps(spec):
        for name, source in step.task.get("inputs", {}).get("parameters", {}).items():
            output = source.get("taskOutputParameter", {})
            producer = output.get("producerTask", "")
            if producer not in names and producer.removesuffix("_task") in names:
                output["producerTask"] = producer = producer.removesuffix("_task")
                specs.depend(step, producer)
                outputs = names[producer].component["outputDefinitions"]["parameters"]
                kind = outputs[output["outputParameterKey"]]["parameterType"]
                specs.parameters(step)[name] = {"parameterType": kind}


def keep_platform_config(spec: Json, node: Any) -> None:
    """Gives a file-based ExampleGen the resources of its ``platform_config``."""
    if isinstance(node, FileBasedExampleGen) and node.platform_config:
        from google.protobuf import json_format

        [step] = [step for step in specs.steps(spec) if step.name == node.id]
        assert step.container is not None
        step.container["resources"] = json_format.MessageToDict(node.platform_config)


def _produced(node: resolver.Resolver) -> list[OutputChannel]:
    """Inputs of the resolver that another node of the pipeline produces, each once."""
    channels = {
        (channel.producer_component_id, channel.output_key): channel
        for union in node.inputs.values()
        for channel in _individual(union)
        if isinstance(channel, OutputChannel)
    }
    return [channels[key] for key in sorted(channels)]


def _individual(channel: BaseChannel) -> list[BaseChannel]:
    """The channels of a resolver's input."""
    if not isinstance(channel, ResolvedChannel):
        return [channel]
    return [leaf.wrapped for leaf in resolver_op.get_input_nodes(channel.output_node)]


def _type(channel: BaseChannel) -> Json:
    schema = compiler_utils.get_artifact_schema(channel.type)
    return {"instanceSchema": schema.decode() if isinstance(schema, bytes) else schema}
