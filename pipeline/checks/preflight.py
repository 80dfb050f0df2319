"""What a training would refuse, refused before the pipeline runs, or is compiled."""

from __future__ import annotations

import tensorflow as tf

from stagecraft.pipeline.checks import classes
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights.loading import Loaded
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.capabilities import capabilities
from stagecraft.trainer_module.planning import planner
from stagecraft.trainer_module.settings import ParallelSettings


def check(settings: PipelineSettings) -> list[str]:
    """Builds the model, on the host, and cuts it where it is to have stages.

    Returns:
        What a user has to know of the model, in sentences.

    Raises:
        UserError: there is no such model, it does not give logits for the schema's classes, it
            cannot be cut so, or ``train.initial_weights`` do not match it.
    """
    train, parallel = settings.train, settings.parallel
    loaded: list[Loaded] = []
    count, host = classes.count(settings.data), tf.device("CPU:0")
    model = assemble(train, count, host, parallel.precision, on_loaded=loaded.append)
    if parallel.stages > 1 or parallel.memory_mb:
        # Where it is cut may be measured later; whether it can be does not depend on that.
        counted = parallel.model_copy(update={"costs": "flops"})
        devices = [f"CPU:{index}" for index in range(parallel.replicas * parallel.stages)]
        planner.make_plan(model, settings.model_copy(update={"parallel": counted}), devices)
    return [*(each.note() for each in loaded), *dropout.notes(model)]


def check_devices(parallel: ParallelSettings) -> None:
    """Refuses devices that this machine has not, for a training on it; starts none of them.

    Raises:
        UserError: names what there is.
    """
    if not capabilities(parallel.strategy).remote_devices:
        topology.choose(parallel)
