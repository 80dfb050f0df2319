"""What cannot be compiled for Kubeflow, said before anything is compiled."""

from __future__ import annotations

from typing import Any

from tfx.components.infra_validator.component import InfraValidator
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.types.channel import Channel
from tfx.utils import name_utils

from stagecraft.components import LatestBlessedBaseline
from stagecraft.schemas.errors import UserError


def check(node: Any) -> None:
    """Refuses a component that TFX's compiler has no step for.

    Raises:
        UserError: a component that needs Kubernetes' own hands, an input that is not one artifact,
            or an output whose type has a name that does not say where its class is.
    """
    if isinstance(node, Pipeline):
        raise UserError(
            f"{node.id}: a pipeline within a pipeline cannot be compiled for Kubeflow; put its "
            "components into the outer one."
        )
    if isinstance(node, InfraValidator):
        raise UserError(
            f"{node.id}: InfraValidator starts a server in a container of its own, which a step of "
            "Kubeflow Pipelines cannot. Leave it out."
        )
    if node.exec_properties.get("module_file"):
        raise UserError(
            f"{node.id}: TFX packs its module_file into a wheel below the pipeline root, which a "
            "step on Kubeflow cannot install. Put the module into the image, and name its function "
            "instead (run_fn, preprocessing_fn) or the module (module_path)."
        )
    for what in _classes(node):
        if what.__module__ == "__main__":
            raise UserError(
                f"{node.id}: {what.__name__} is defined in the script that compiles, which a step "
                "does not have. Put it into a module that is in the image."
            )
    for key, channel in node.inputs.items():
        if not isinstance(channel, Channel):
            raise UserError(
                f"{node.id}: its input {key} is not the output of one component (a union, a "
                "ForEach or a resolver function), which cannot be compiled for Kubeflow."
            )
    for key, channel in node.outputs.items():
        try:
            compiler_utils.get_artifact_schema(channel.type)
        except ValueError:
            path = name_utils.get_full_name(channel.type)
            raise UserError(
                f"{node.id}: a step finds the class of its output {key} by the type's name, and "
                f"{channel.type.TYPE_NAME!r} does not say where it is. Give {path} a TYPE_NAME "
                f"such as 'my_types.{channel.type.__name__}': a module at the top level, of 3 to "
                "21 small letters, a dot, and the class's name there."
            ) from None


def check_resolver(node: resolver.Resolver) -> None:
    """Refuses what has no counterpart on Kubeflow.

    Raises:
        UserError: a strategy other than "the latest blessed model".
    """
    strategy = node.exec_properties[resolver.RESOLVER_STRATEGY_CLASS]
    if not issubclass(strategy, (LatestBlessedModelStrategy, LatestBlessedBaseline)):
        raise UserError(
            f"{node.id}: Kubeflow Pipelines has no resolvers, and the strategy "
            f"{strategy.__name__} has no replacement there. Use LatestBlessedModelStrategy or "
            "stagecraft.components.LatestBlessedBaseline, or an Importer with a fixed address."
        )


def _classes(node: Any) -> list[type]:
    """What a step imports: executor, driver, and the types of its artifacts."""
    given = [getattr(node.executor_spec, "executor_class", None), node.driver_class]
    types = [channel.type for channel in (*node.inputs.values(), *node.outputs.values())]
    return [what for what in (*given, *types) if what is not None]
