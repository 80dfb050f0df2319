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
                f"{channel.type.TYPE_NAME!r} does not say where it is. Give {path} the TYPE_NAME "
                f"{path!r}: a short package, a dot, and a name with a capital."
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
