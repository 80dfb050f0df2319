"""One stage, asynchronously: workers train by themselves on variables that parameter servers hold.

Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server". The chief
schedules each global batch on a free worker; if a worker is lost, another takes its step. With
several workers, gradients belong to weights that are some steps old, so that only one worker
computes what one device does. A worker can be lost after it has applied its step and before it has
reported it. The step is then applied twice and counted once; ``repeated`` counts such steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines import feeding, step_metrics
from stagecraft.trainer_module.engines.strategy_engine import StrategyEngine
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.processes import loopback

_AHEAD = 8
"""Batches that the chief schedules for each worker at a time; after them, all wait for the
slowest."""


class ParameterServerEngine(StrategyEngine):
    """An engine on the chief."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._scheduled_graphs = [
            tf.function(functools.partial(self._scheduled, phase), autograph=False)
            for phase in self._phases
        ]

    def _scheduled(self, phase: variable_patterns.Phase, batch: Batch) -> step_metrics.StepMetrics:
        self._freeze(phase.frozen)
        return self._global_step(batch)[0]

    def feed(self, dataset: tf.data.Dataset) -> Iterator[Batch]:
        """Iterator over global batches, on the chief."""
        return feeding.on_host(dataset)

    def train(self, batches: Iterator[Batch], steps: int) -> step_metrics.Metrics:
        """Takes ``steps`` global batches, each on a worker that is free."""
        begin = self.step
        taken: list[tuple[float, np.ndarray]] = []
        while len(taken) < steps:
            ahead = min(steps - len(taken), _AHEAD * self._topology.workers)
            step = begin + len(taken)
            number = variable_patterns.number_at(self._phases, step)
            if (end := self._phases[number].end) is not None:
                ahead = min(ahead, end - step)
            graph = self._scheduled_graphs[number]
            values = [
                self._coordinator.schedule(graph, args=(next(batches),)) for _ in range(ahead)
            ]
            # Fetched before the join, a value would fail with its worker.
            self._coordinator.join()
            taken.extend(map(_fetch, values))
        self.repeated += self.step - begin - steps
        self._step.assign(begin + steps)
        for index, (loss, _) in enumerate(taken):
            if not math.isfinite(loss):
                raise step_metrics.NonFiniteLossError(begin + index + 1, loss)
        metrics = self.objective.values(np.sum([sums for _, sums in taken], axis=0))
        examples = steps * self._settings.train.batch_size
        return step_metrics.Metrics(sum(loss for loss, _ in taken) / steps, metrics, examples)

    def _run(self, function: Callable[..., Any], batch: Batch) -> Any:
        # Scheduled functions run on a worker, the others here.
        scheduled = tf.distribute.has_strategy()
        return super()._run(function, batch) if scheduled else function(batch)

    def _host_variable(self, value: Any, dtype: tf.DType) -> tf.Variable:
        with self._strategy.scope():
            return tf.Variable(value, dtype=dtype, trainable=False)


def _fetch(metrics: Any) -> tuple[float, np.ndarray]:
    """Loss and metrics' sums of a step that is done."""
    loss, sums = metrics.fetch()
    return float(loss), np.asarray(sums, np.float64)


def serve() -> None:
    """Runs a worker or a parameter server: does the chief's work; never returns."""
    resolver = cluster.resolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    if (members := cluster.read()) is not None:
        loopback.restrict(members.address)
    server.join()
