"""The pipeline: Stagecraft's components, as settings.yaml describes them, and yours."""

from collections.abc import Mapping, Sequence

import stagecraft.pipeline
from stagecraft.pipeline import PipelineSettings
from tfx import v1 as tfx
from tfx.dsl.components.base.base_node import BaseNode

from pipeline import configs


def create_pipeline(
    settings: PipelineSettings = configs.SETTINGS,
    output: str = str(configs.OUTPUT),
    engine: str = "local",
) -> tfx.dsl.Pipeline:
    """Creates the pipeline.

    Args:
        settings: the settings of all components.
        output: folder for all files of a run on this machine.
        engine: local, kubeflow or vertex.
    """
    return stagecraft.pipeline.create_pipeline(
        settings, output, engine=engine, replace=replace, add=add
    )


def replace(component: BaseNode, earlier: Mapping[str, BaseNode]) -> BaseNode:
    """Returns a component, or one of yours in its place.

    The pipeline calls this function with ExampleGen, StatisticsGen, SchemaGen, AnomalyGate,
    Transform, ParityGate, Trainer, Baseline, Evaluator, Pusher and TrainingReport, in this order.
    Later components read the outputs of the returned one.

    Args:
        component: of Stagecraft; ``component.id`` is its name.
        earlier: the components before it, by their IDs.
    """
    return component


def add(components: Mapping[str, BaseNode]) -> Sequence[BaseNode]:
    """Returns components of yours that read the outputs of others.

    Args:
        components: all components of the pipeline, by their IDs.
    """
    return []
