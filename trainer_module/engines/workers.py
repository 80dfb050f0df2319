"""Messages between the workers of a grid besides gradients, from host to host."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from stagecraft.trainer_module.engines.collectives import Group
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.partition import partition
from stagecraft.trainer_module.planning import planner
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.settings import TrainingSettings

_HOST = "CPU:0"


class Workers:
    """All workers of a topology, seen from one; each method is called by all of them."""

    def __init__(self, topology: Topology):
        self._topology = topology
        self._group = Group([_HOST], "auto", topology.workers)

    def all_reduce(self, value: tf.Tensor) -> tf.Tensor:
        """The sum over the workers, in a graph; under the host's device."""
        return self._group.all_reduce(0, [value])[0]

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over the workers of what each gives."""
        with tf.device(_HOST):
            own = tf.constant(values, tf.float64)
            return [float(value) for value in self._group.all_reduce(0, [own])[0]]

    def take_from_chief(self, variables: Sequence[keras.Variable]) -> None:
        """Copies the chief's values to the variables of a new model, which are on the host."""
        if self._topology.workers == 1:
            return
        for variable, value in zip(
            variables, self._chiefs([variable.value for variable in variables]), strict=True
        ):
            variable.assign(tf.cast(value, variable.dtype))

    def make_plan(self, model: keras.Model, settings: TrainingSettings) -> Plan:
        """The plan of the model's stages, cut on all workers as on the chief."""
        parallel, devices = settings.parallel, self._topology.devices
        same = parallel.costs == "flops" or parallel.cut_names
        if self._topology.workers == 1 or same:
            return planner.make_plan(model, settings, devices)
        # Measured times differ between workers, so the chief chooses the cuts.
        names = [point.layer for point in partition.cut_points(model)]
        if self._topology.worker == 0:
            plan = planner.make_plan(model, settings, devices)
            self._chiefs([tf.constant([names.index(cut) for cut in plan.cuts], tf.int64)])
            return plan
        (chosen,) = self._chiefs([tf.zeros([parallel.model_parts - 1], tf.int64)])
        cuts = ",".join(names[index] for index in chosen)
        known = parallel.model_copy(update={"cuts": cuts or "auto", "costs": "flops"})
        return planner.make_plan(model, settings.model_copy(update={"parallel": known}), devices)

    def _chiefs(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The chief's values, integers as int64; the others pass values of the same shapes."""
        with tf.device(_HOST):
            wide = [
                tf.convert_to_tensor(value) if value.dtype.is_floating else tf.cast(value, tf.int64)
                for value in values
            ]
            # A sum with zeros is a broadcast.
            own = wide if self._topology.worker == 0 else [tf.zeros_like(value) for value in wide]
            return self._group.all_reduce(0, own)
