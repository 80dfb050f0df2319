"""Moves Beam's arguments from a step's container into its environment.

The backend's cache key has the arguments of the container, and not its environment.
"""

from __future__ import annotations

import json
from typing import Any

from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.orchestration.pipeline import Pipeline

from stagecraft.pipeline.beam import arguments
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.settings.kubeflow import Step


def step_of(step: specs.Step, node: Any, pipeline: Pipeline, wanted: Step) -> Step:
    """Settings of a node's step, with its Beam arguments; changes the container's arguments.

    Arguments of options that Beam does not know may change results, and stay.
    """
    if not isinstance(node, BaseComponent) or not specs.is_ours(step):
        return wanted
    executor: Any = node.executor_spec
    own = isinstance(executor, BeamExecutorSpec)
    given = list(executor.beam_pipeline_args if own else pipeline.beam_pipeline_args)
    if not given:
        return wanted
    args = step.executor["container"]["args"]
    [start] = [i for i in range(len(args)) if args[i : i + len(given)] == given]
    if not issubclass(executor.executor_class, BaseBeamExecutor):  # TFX passes it none
        del args[start : start + len(given)]
        return wanted
    known, args[start : start + len(given)] = arguments.split(given)
    return wanted.model_copy(update={"env": {**wanted.env, specs.BEAM_ARGS: json.dumps(known)}})
