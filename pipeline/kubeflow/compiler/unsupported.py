"""Refuses components that cannot be compiled for Kubeflow."""

from __future__ import annotations

from typing import Any

from tfx.components.infra_validator.component import InfraValidator
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.types.channel import Channel
from tfx.utils import name_utils

from stagecraft.common.errors import UserError
from stagecraft.components import LatestBlessedBaseline


class UnsupportedNodeError(UserError):
    """A node that cannot be compiled for Kubeflow."""

    def __init__(self, node: Any, problem: str):
        super().__init__(f"{node.id}: {problem}", record=node.id)


def check(node: Any) -> None:
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


def check_complete(pipeline: Pipeline) -> None:
    """Refuses a pipeline without components, or one that lacks a component.

    Raises:
        UserError: the pipeline is empty.
        UnsupportedNodeError: a component reads the output of one that is not in the pipeline.
    """
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


def check_resolver(node: resolver.Resolver) -> None:
    """Refuses resolvers without a counterpart on Kubeflow."""
    strategy = node.exec_properties[resolver.RESOLVER_STRATEGY_CLASS]
    if not issubclass(strategy, (LatestBlessedModelStrategy, LatestBlessedBaseline)):
        raise UnsupportedNodeError(
            node,
            "Kubeflow Pipelines has no resolvers, and the strategy "
            f"{strategy.__name__} has no replacement there. Use LatestBlessedModelStrategy or "
            "stagecraft.components.LatestBlessedBaseline, or an Importer with a fixed address.",
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
