"""One stage, asynchronously: workers train by themselves on variables that parameter servers hold.

Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", by way of
``tf.distribute.ParameterServerStrategy``. The chief schedules a step at a time on
whichever worker is free. Each step takes a whole global batch; with several workers, gradients
are of weights that are some steps old, so only one worker computes what one device does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module import cluster
from stagecraft.trainer_module.engines.base import Metrics, NonFiniteLossError
from stagecraft.trainer_module.engines.strategy import BuildModel, StrategyEngine
from stagecraft.trainer_module.input_data import Batch
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.topology import Topology


class ParameterServerEngine(StrategyEngine):
    """An :class:`~stagecraft.trainer_module.engines.base.Engine`, on the chief."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        topology: Topology,
        settings: TrainingSettings,
        total_steps: int,
        build_model: BuildModel,
    ):
        """As :class:`StrategyEngine`."""
        super().__init__(strategy, topology, settings, total_steps, build_model)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def feed(self, dataset: tf.data.Dataset) -> Iterator[Any]:
        """An iterator on each worker, over the same global batches."""
        return iter(self._coordinator.create_per_worker_dataset(dataset))

    def train(self, batches: Iterator[Any], steps: int) -> Metrics:
        """Takes ``steps`` steps, each on a worker that is free.

        Raises:
            NonFiniteLossError: a step's loss is not finite.
        """
        one = tf.constant(1, tf.int64)
        values = [
            self._coordinator.schedule(self._train_graph, args=(batches, one)) for _ in range(steps)
        ]
        self._coordinator.join()
        taken = np.array([[float(part) for part in value.fetch()] for value in values])
        _, _, losses, _, right = taken.T
        if not math.isfinite(losses.sum()):
            raise NonFiniteLossError(self.step, losses[~np.isfinite(losses)][0])
        examples = steps * self._settings.train.batch_size
        return Metrics(float(losses.mean()), float(right.sum()) / examples, examples)

    def evaluate(self, dataset: tf.data.Dataset) -> Metrics:
        """As :meth:`TrainingEngine.evaluate`, on the chief: every example once."""
        return self._evaluate_over(iter(dataset))

    def _run(self, function: Callable[..., Any], batch: Batch) -> Any:
        # The strategy runs what it has scheduled on a worker; the rest is done here.
        scheduled = tf.distribute.has_strategy()
        return super()._run(function, batch) if scheduled else function(batch)

    def _host_variable(self, value: Any, dtype: tf.DType) -> tf.Variable:
        with self._strategy.scope():
            return tf.Variable(value, dtype=dtype, trainable=False)


def serve() -> None:
    """What a worker and a parameter server do: wait for the chief's work; never returns."""
    resolver = cluster.resolver()
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    ).join()
