"""Refuses or replaces nodes that the backend does not run: it runs containers and nothing else."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.components.infra_validator.component import InfraValidator
from tfx.dsl.components.base import base_driver
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution import resolver_op
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.types.channel import BaseChannel, Channel, OutputChannel
from tfx.types.resolved_channel import ResolvedChannel
from tfx.types.standard_artifacts import Examples, ExampleStatistics, Model
from tfx.types.standard_component_specs import RANGE_CONFIG_KEY
from tfx.utils import name_utils

from stagecraft.common.errors import UserError
from stagecraft.components import BaseModel, LastStatistics, LatestBlessedBaseline, SpanWindow
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.spec import Json

_STRATEGIES = (
    *(LatestBlessedModelStrategy, LatestBlessedBaseline),
    *(SpanWindow, BaseModel, LastStatistics),
)
"""Of resolvers that steps can replace."""


class UnsupportedNodeError(UserError):
    """A node that cannot be compiled for Kubeflow."""

    def __init__(self, node: Any, problem: str):
        """``node``: of TFX, or the name of its step."""
        name = node if isinstance(node, str) else node.id
        super().__init__(f"{name}: {problem}", record=name)


def check(pipeline: Pipeline) -> None:
    """Refuses a pipeline with a node that cannot be compiled for Kubeflow.

    Raises:
        UserError: the pipeline is empty.
        UnsupportedNodeError: a node cannot be compiled, or reads the output of one that is not in
            the pipeline.
    """
    _check_complete(pipeline)
    for node in pipeline.components:
        if isinstance(node, resolver.Resolver):
            _check_resolver(node)
        else:
            _check_step(node)


def check_exit_handler(node: Any) -> None:
    """Refuses an exit handler that cannot be compiled for Kubeflow.

    Raises:
        UnsupportedNodeError: as said.
    """
    _check_step(node)
    if node.inputs:
        raise UnsupportedNodeError(
            node,
            f"an exit handler has no inputs, because the steps that give {', '.join(node.inputs)} "
            "may not have run. Read what it needs from an address.",
        )
    if driver_of(node):
        raise UnsupportedNodeError(
            node,
            "the component has a driver of its own, which an exit handler cannot have. Use a "
            "component without one, such as a function with @exit_handler.",
        )
    for name, value in node.exec_properties.items():
        if isinstance(value, RuntimeParameter):
            raise UnsupportedNodeError(
                node,
                f"the parameter {name!r} is a RuntimeParameter, which TFX does not compile in an "
                "exit handler. Use a constant.",
            )


def replace(spec: Json, pipeline: Pipeline, image: str) -> dict[str, str]:
    """Replaces resolvers and drivers with steps that run ``image``.

    Returns:
        Name of the step that runs a driver -> ID of the component that has it.
    """
    drivers, resolvers = {}, list[str]()
    _name_conditions(spec)
    for node in pipeline.components:
        _keep_platform_config(spec, node)
        if isinstance(node, resolver.Resolver):
            _add_resolver(spec, node, image, resolvers)
            resolvers.append(node.id)
        elif driver_of(node):
            drivers[_add_driver(spec, node, image)] = node.id
    _name_producers(spec)
    return drivers


def driver_of(node: Any) -> str | None:
    """Dotted path of a component's driver; None: it has the default one."""
    driver = node.driver_class if isinstance(node, BaseComponent) else base_driver.BaseDriver
    return None if driver is base_driver.BaseDriver else name_utils.get_full_name(driver)


def _check_step(node: Any) -> None:
    """Refuses a component that cannot be a step."""
    if isinstance(node, Pipeline):
        raise UnsupportedNodeError(
            node,
            "a pipeline within a pipeline cannot be compiled for Kubeflow. Move its components "
            "into the outer one.",
        )
    if isinstance(node, InfraValidator):
        raise UnsupportedNodeError(
            node,
            "InfraValidator starts a server in a container, which a step of Kubeflow Pipelines "
            "cannot do. Remove this component.",
        )
    if node.exec_properties.get("module_file"):
        raise UnsupportedNodeError(
            node,
            "TFX packs its module_file into a wheel below the pipeline root, and a step on "
            "Kubeflow cannot install this wheel. Put the module into the container image. Instead "
            "of module_file, set run_fn or preprocessing_fn to the path of the function, or "
            "module_path to the path of the module.",
        )
    for name, value in node.exec_properties.items():
        if not isinstance(value, RuntimeParameter) and _has_runtime_parameter(value):
            raise UnsupportedNodeError(
                node,
                f"the parameter {name!r} contains a RuntimeParameter within a dict, a list or a "
                "message, which TFX would compile as text. Make the RuntimeParameter the whole "
                "value of a parameter.",
            )
    for each in _classes(node):
        if each.__module__ == "__main__":
            raise UnsupportedNodeError(
                node,
                f"{each.__name__} is defined in the script that compiles the pipeline. The "
                "container image does not contain this script. Move the class into a module in the "
                "container image.",
            )
    for key, channel in node.inputs.items():
        if not isinstance(channel, Channel):
            raise UnsupportedNodeError(
                node,
                f"the input {key!r} is not the output of one component, but a union, a ForEach or "
                "a resolver function, which cannot be compiled for Kubeflow.",
            )
    for key, channel in node.outputs.items():
        try:
            compiler_utils.get_artifact_schema(channel.type)
        except ValueError:
            path = name_utils.get_full_name(channel.type)
            raise UnsupportedNodeError(
                node,
                f"the output {key!r} has the type name {channel.type.TYPE_NAME!r}, but a type name "
                f"must contain the module from which a step imports the class. Give {path} a "
                f"TYPE_NAME such as 'my_types.{channel.type.__name__}': a top-level module of 3 to "
                "21 lower-case letters, a dot, and the name of the class.",
            ) from None


def _check_complete(pipeline: Pipeline) -> None:
    """Refuses a pipeline without components, or one that lacks a component."""
    name = pipeline.pipeline_info.pipeline_name
    if not pipeline.components:
        raise UserError(f"{name}: the pipeline has no components.", record=name)
    names = {node.id for node in pipeline.components}
    for node in pipeline.components:
        for key, channel in node.inputs.items():
            producer = getattr(channel, "producer_component_id", None)
            if producer and producer not in names:
                raise UnsupportedNodeError(
                    node,
                    f"the input {key!r} is an output of {producer!r}, which is not in the "
                    "pipeline. Add it to the pipeline's components.",
                )


def _check_resolver(node: resolver.Resolver) -> None:
    """Refuses resolvers without a counterpart on Kubeflow."""
    strategy = node.exec_properties[resolver.RESOLVER_STRATEGY_CLASS]
    if not issubclass(strategy, _STRATEGIES):
        raise UnsupportedNodeError(
            node,
            "Kubeflow Pipelines has no resolvers, and the strategy "
            f"{strategy.__name__} has no replacement there. Use LatestBlessedModelStrategy, or "
            "LatestBlessedBaseline, SpanWindow, BaseModel or LastStatistics of "
            "stagecraft.components, or an Importer with a fixed address.",
        )


def _has_runtime_parameter(value: Any) -> bool:
    if isinstance(value, str):  # TFX has made it JSON
        return "RuntimeParameter" in value and "__tfx_object_type__" in value
    if isinstance(value, (dict, list, tuple)):
        return any(
            map(_has_runtime_parameter, value.values() if isinstance(value, dict) else value)
        )
    return isinstance(value, RuntimeParameter)


def _classes(node: Any) -> list[type]:
    """Classes that a step imports: executor, driver, and types of artifacts."""
    code = [getattr(node.executor_spec, "executor_class", None), node.driver_class]
    types = [channel.type for channel in (*node.inputs.values(), *node.outputs.values())]
    return [each for each in (*code, *types) if each is not None]


def _add_driver(spec: Json, node: Any, image: str) -> str:
    """Adds a step before the node that runs its driver; returns the name.

    It is never cached: the driver reads span, version and fingerprint of the data at run time.
    """
    [step] = [step for step in specs.steps(spec) if step.name == node.id]
    assert step.container is not None
    step.container.pop("lifecycle", None)
    name = _unused_name(spec, f"{node.id}-inputs")  # the backend uses "-driver"
    outputs = {
        key: definition["artifactType"]["instanceSchema"]
        for key, definition in step.outputs("artifacts").items()
    }
    specs.add(
        spec,
        name,
        image=image,
        operation=[specs.RESOLVE, "--driver_class_path", str(driver_of(node))],
        output_types=outputs,
        # The artifacts of the node's condition, which is the condition of its driver, too.
        task={
            key: copy.deepcopy(step.task[key])
            for key in ("inputs", "dependentTasks", "triggerPolicy")
            if key in step.task
        },
        component={
            "inputDefinitions": copy.deepcopy(step.component.get("inputDefinitions", {})),
            "outputDefinitions": {"parameters": {specs.DRIVER_OUTPUT: {"parameterType": "STRING"}}},
        },
    )
    chosen = step.sources("parameters").get(RANGE_CONFIG_KEY, {})
    if "componentInputParameter" in chosen:  # the cache key has the span, not how it was chosen
        del step.sources("parameters")[RANGE_CONFIG_KEY]
        del step.inputs("parameters")[RANGE_CONFIG_KEY]
    output = specs.from_task(name, specs.DRIVER_OUTPUT)
    step.add_parameter(specs.DRIVER_OUTPUT, "STRING", output)
    step.depend(name)
    return name


def _unused_name(spec: Json, name: str) -> str:
    """The name, with a number if a component of the user has it."""
    names = {name for tasks in specs.dags(spec) for name in tasks}
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in names)


def _add_resolver(
    spec: Json, node: resolver.Resolver, image: str, resolvers: Sequence[str]
) -> None:
    """Replaces the resolver with an uncached step that looks up an artifact of an earlier run.

    Its outputs are parameters (an address and properties, or nothing), not artifacts: a new
    artifact in each run would be a new input of later steps, and prevent their caching.

    Args:
        resolvers: those that were replaced before.
    """
    config = node.exec_properties[resolver.RESOLVER_CONFIG]
    types = {name: channel.type.TYPE_NAME for name, channel in node.outputs.items()}
    # Types of this run's artifacts that tell the step what to leave out.
    kinds: tuple[type[Any], ...] = (Model,)
    operation = [specs.LATEST_BLESSED]
    if issubclass(node.exec_properties[resolver.RESOLVER_STRATEGY_CLASS], SpanWindow):
        kinds, types = (Examples,), {"examples": types["examples"]}
        operation = [specs.SPAN_WINDOW, "--size", str(config["size"])]
    elif "choice" in config:
        kinds = (Examples, ExampleStatistics)
        operation += [specs.CHOICE, config["choice"]]
    candidates = {
        f"candidate_{index}": channel
        for index, channel in enumerate(_produced(node))
        if issubclass(channel.type, kinds)
    }
    specs.add(
        spec,
        node.id,
        image=image,
        operation=operation,
        output_types=types,
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
        for producer in resolvers if step.name == node.id else [node.id]:
            _take_parameters(step, producer)


def _take_parameters(step: specs.Step, producer: str) -> None:
    """Turns input artifacts of a resolver into input parameters."""
    resolved = {}
    sources = step.sources("artifacts")
    for name, source in list(sources.items()):
        output = source.get("taskOutputArtifact", {})
        if output.get("producerTask") != producer:
            continue
        del sources[name]
        definition = step.inputs("artifacts").pop(name)
        resolved[name] = definition["artifactType"]["instanceSchema"]
        source = specs.from_task(producer, output["outputArtifactKey"])
        step.add_parameter(name, "STRING", source)
    if not resolved:
        return
    for name in resolved:
        if f"inputs.artifacts['{name}']" in step.condition:
            raise UnsupportedNodeError(
                step.name,
                f"has a condition on what the resolver {producer!r} finds, which is no artifact of "
                "a step on Kubeflow. Put the condition on an output of another node.",
            )
    if not step.is_ours:
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


def _name_producers(spec: Json) -> None:
    """Corrects producers, to which TFX adds ``_task``, and types, which TFX calls STRING."""
    names = {step.name: step for step in specs.steps(spec)}
    for step in specs.steps(spec):
        for name, source in step.sources("parameters").items():
            output = source.get("taskOutputParameter", {})
            producer = output.get("producerTask", "")
            if producer not in names and producer.removesuffix("_task") in names:
                output["producerTask"] = producer = producer.removesuffix("_task")
                step.depend(producer)
                outputs = names[producer].outputs("parameters")
                kind = outputs[output["outputParameterKey"]]["parameterType"]
                step.add_parameter(name, kind, source)


def _name_conditions(spec: Json) -> None:
    """Corrects inputs in conditions: TFX writes ``_PRODUCER.OUTPUT``.

    Where the artifact is an input of the node anyway, the step has it under the input's name alone.
    """
    for step in specs.steps(spec):
        sources = step.sources("artifacts")
        for name, source in sources.items() if step.condition else ():
            output = source["taskOutputArtifact"]
            implied = f"_{output['producerTask']}.{output['outputArtifactKey']}"
            if implied not in sources:
                step.task["triggerPolicy"]["condition"] = step.condition.replace(
                    f"inputs.artifacts['{implied}']", f"inputs.artifacts['{name}']"
                )


def _keep_platform_config(spec: Json, node: Any) -> None:
    """Gives a file-based ExampleGen the resources of its ``platform_config``."""
    if isinstance(node, FileBasedExampleGen) and node.platform_config:
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
