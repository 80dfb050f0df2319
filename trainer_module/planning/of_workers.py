"""One plan for all workers of a topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.partition import partition
from stagecraft.trainer_module.planning import planner
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.settings import TrainingSettings


def make_plan(
    model: keras.Model,
    settings: TrainingSettings,
    topology: Topology,
    from_chief: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]],
) -> Plan:
    """The plan of a model's stages, cut on all workers as on the chief.

    Args:
        from_chief: gives each worker the chief's values; the others pass values of equal shapes.
    """
    parallel, devices = settings.parallel, topology.devices
    same = parallel.costs == "flops" or parallel.cut_names
    if topology.workers == 1 or same:
        return planner.make_plan(model, settings, devices)
    # Measured times differ between workers, so the chief chooses the cuts.
    names = [point.layer for point in partition.cut_points(model)]
    if topology.worker == 0:
        plan = planner.make_plan(model, settings, devices)
        from_chief([tf.constant([names.index(cut) for cut in plan.cuts], tf.int64)])
        return plan
    (chosen,) = from_chief([tf.zeros([parallel.model_parts - 1], tf.int64)])
    cuts = ",".join(names[index] for index in chosen)
    known = parallel.model_copy(update={"cuts": cuts or "auto", "costs": "flops"})
    return planner.make_plan(model, settings.model_copy(update={"parallel": known}), devices)
