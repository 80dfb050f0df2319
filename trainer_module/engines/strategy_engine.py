"""One stage: the whole model on every replica, under a ``tf.distribute`` strategy.

In every step a replica takes its part of the global batch, in one or more accumulation steps. One
all-reduce then sums what the replicas computed: the loss is ``sum(example losses) / global batch``,
so adding up the parts' gradients gives the gradient of one device. The model's state (moving
statistics) is read and written once a step, as the mean over the parts: with Keras alone, the
replicas' states drift apart.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines import divisibility, feeding, placement_check, step_metrics
from stagecraft.trainer_module.engines.engine import Engine, Variable, unique
from stagecraft.trainer_module.engines.gradient_sums import over_strategy
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.models.layers import adapting, dropout
from stagecraft.trainer_module.optimization import averages, slots
from stagecraft.trainer_module.optimization.gradients import (
    add_noise,
    clip_by_value,
    clip_factor,
    scaled,
    squared_norm,
)
from stagecraft.trainer_module.optimization.loss_scale import all_finite
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.pipeline_parallel.stage import Stage
from stagecraft.trainer_module.settings import TrainingSettings

BuildModel = Callable[[AbstractContextManager[Any]], keras.Model]


class StrategyEngine(Engine):
    """An engine of replicas."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        topology: Topology,
        settings: TrainingSettings,
        total_steps: int,
        build_model: BuildModel,
    ):
        """Builds the model and its optimizer on the topology's devices."""
        self._strategy = strategy
        super().__init__(settings, total_steps)
        self._topology = topology
        self._sum_graph = tf.function(self._sum, autograph=False)
        self._model = build_model(self._strategy.scope())
        adapting.take_from_chief(self._model, topology.worker == 0, self.sum_over_workers)
        dropout.key_layers(self._model, settings.train.seed)
        parallel = settings.parallel
        parts = parallel.accumulate * strategy.num_replicas_in_sync
        self._stage = Stage(self._model, parallel.jit, parallel.remat, parts, self._dtype)
        divisibility.check([self._stage], parallel)
        variables = self._model.trainable_variables
        paths = [variable.path for variable in variables]
        self._phases = variable_patterns.phases(settings.train, paths, total_steps)
        self._freeze(variable_patterns.ALL.frozen)
        with self._strategy.scope():
            self._optimizer = make_optimizer(settings.train, variables)
            # Keras would sum gradients over the replicas again. The engine sums them earlier, to
            # clip them and to send them in one all-reduce with the rest.
            self._optimizer._all_reduce_sum_gradients = list
            assigned = [each for each in self._stage.state if id(each) in self._stage.assigned]
            self._averaged = averages.averaged(settings.train, variables, assigned)
            self._averages = averages.create(self._averaged)

    def feed(self, dataset: tf.data.Dataset) -> Iterator[Batch]:
        """Iterator over global batches: whole on CPUs, otherwise a part for each replica.

        A strategy copies ahead to each device, which logical CPUs do not need: they share the
        host's memory. The copies would wait until the replicas leave a thread free, and then the
        next step would wait for the copies.
        """
        replicas = self._topology.replicas
        if self._topology.on_cpus:
            return feeding.on_host(dataset)
        if replicas > 1:
            # The strategy would guess batch sizes from the dataset's graph.
            dataset = dataset.map(lambda batch: batches.cut(batch, replicas, -1)).unbatch()
        return feeding.on_replicas(self._strategy, dataset)

    def _freeze(self, frozen: Collection[str]) -> None:
        self._trained = [each for each in self._stage.trainable if each.path not in frozen]
        self._connected = [True] * len(self._trained)  # known when a step has been traced
        self._stage.freeze(frozen)

    def _global_step(self, batch: Batch) -> tuple[step_metrics.StepMetrics, tf.Tensor]:
        strategy, scale = self._strategy, self._loss_scale
        self._optimizer.learning_rate.assign(self._rate(self._step))
        self._optimizer.iterations.assign(self._counted(self._step))
        gradients, metrics, changed = self._run(self._replica_gradients, batch)
        finite = None
        if scale is not None:
            finite = self._first(strategy.run(all_finite, args=(gradients,)))

        def apply() -> None:
            self._assign(changed)
            with _without_constraints(self._stage.trainable):  # all replicas' threads
                strategy.run(self._update, args=(gradients,))
            self._finish_step()

        metrics = step_metrics.StepMetrics(*map(self._first, metrics))
        return metrics, self._commit(finite, metrics.loss, apply)

    def _replica_gradients(
        self, batch: Batch
    ) -> tuple[list[tf.Tensor], step_metrics.StepMetrics, dict[int, tf.Tensor]]:
        """Summed over all replicas: the gradients, the metrics, and what layers assigned."""
        settings = self._settings
        context = tf.distribute.get_replica_context()
        size, steps = batches.size(batch), settings.parallel.accumulate
        first = tf.cast(context.replica_id_in_sync_group, tf.int64) * tf.cast(size, tf.int64)
        rows = first + tf.range(tf.cast(size, tf.int64))
        values = [tf.convert_to_tensor(variable) for variable in self._stage.variables]
        # A compiled stage takes no variable of another device.
        step = self._counted(self._step.read_value())
        scale = self._loss_scale.value if self._loss_scale else None

        cut, cut_rows = batches.cut(batch, steps, -1), tf.reshape(rows, [steps, -1])

        def accumulation_step(index: tf.Tensor | int) -> Any:
            part = batch if steps == 1 else batches.take(cut, index)
            part_rows = rows if steps == 1 else cut_rows[index]
            return self._part(values, part, part_rows, step, scale)

        gradients, loss, sums, changed = step_metrics.accumulate(
            accumulation_step, steps, step_metrics.plus
        )

        # One all-reduce for everything; integers (a seed) are the same on all replicas.
        parts = steps * self._strategy.num_replicas_in_sync
        means = {i: value / parts for i, value in changed.items() if value.dtype.is_floating}
        summed = over_strategy(context, [*gradients, *means.values(), loss, sums])
        gradients, rest = summed[: len(gradients)], summed[len(gradients) :]
        changed |= dict(zip(means, rest, strict=False))
        if scale is not None:
            gradients = scaled(gradients, 1 / scale)
        return gradients, step_metrics.StepMetrics(*rest[-2:]), changed

    def _part(
        self,
        values: Sequence[tf.Tensor],
        batch: Batch,
        rows: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor, dict[int, tf.Tensor]]:
        """One part of the global batch: its gradients, loss, metrics' sums, changed variables."""
        train = self._settings.train
        parts = self._settings.parallel.accumulate * self._strategy.num_replicas_in_sync
        trained = self._stage.trained(values)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trained)
            outputs, changed, penalty = self._stage(values, batch.inputs, step, rows)
            losses = self.objective.loss(outputs, batch)
            loss = losses / train.batch_size + tf.cast(penalty, losses.dtype) / parts
            target = loss if scale is None else loss * scale
        gradients, self._connected = step_metrics.connected(tape.gradient(target, trained), trained)
        sums = self.objective.sums(outputs, batch)
        return gradients, tf.cast(loss, self._dtype), sums, changed

    def _update(self, gradients: list[tf.Tensor]) -> None:
        """Applies summed gradients, in replica context."""
        train = self._settings.train
        if train.clip_norm:
            by = clip_factor(squared_norm(gradients), train.clip_norm)
            gradients = scaled(gradients, by)
        if train.clip_value:
            gradients = clip_by_value(gradients, train.clip_value)
        if train.gradient_noise:
            paths = [weight.path for weight in self._trained]
            step = self._counted(self._step.read_value())
            gradients = add_noise(gradients, paths, train.gradient_noise, train.seed, step)
        step_metrics.check_connected(self._connected)
        pairs = zip(gradients, self._trained, self._connected, strict=True)
        used = [(gradient, weight) for gradient, weight, is_used in pairs if is_used]
        self._optimizer.apply(*map(list, zip(*used, strict=True)))

    def _assign(self, changed: dict[int, Any]) -> None:
        """Writes what layers assigned, outside of the replicas and before the optimizer."""
        for index, value in changed.items():
            self._stage.variables[index].assign(self._first(value))

    def _finish_step(self) -> None:
        """Applies constraints and moves the averages, outside of the replicas.

        Within them, CentralStorageStrategy refuses an assignment to its one variable.
        """
        train, strategy = self._settings.train, self._strategy
        for weight, is_used in zip(self._trained, self._connected, strict=True):
            if is_used and weight.constraint is not None:
                strategy.extended.update(
                    weight.value, _constrain, args=(weight.constraint,), group=False
                )
        if self._averages:
            done = self._step + 1
            decay = self._decay(done)
            if train.lookahead:
                due = averages.pull_is_due(train.lookahead, done)
                averages.when_due(due, functools.partial(self._pull, decay))
            else:
                averages.update_ema(strategy, self._averages, self._averaged, decay)

    def _pull(self, decay: tf.Tensor) -> None:
        """Pulls the weights that have a gradient, and the moving statistics."""
        uses = zip(self._trained, self._connected, strict=True)
        unused = {id(weight) for weight, is_used in uses if not is_used}
        frozen = {*map(id, self._stage.trainable)} - {*map(id, self._trained)}
        update = functools.partial(self._strategy.extended.update, group=False)
        for slow, variable in zip(self._averages, self._averaged, strict=True):
            if id(variable) in frozen:
                update(slow, averages.follow, args=(variable.value,))
            elif id(variable) not in unused:
                update(slow, averages.pull, args=(variable.value, decay, variable.constraint))

    def _gradients(self, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        summed, metrics, _ = self._run(self._replica_gradients, batch)
        paths = [variable.path for variable in self._trained]
        return self._first(metrics.loss), dict(zip(paths, map(self._first, summed), strict=True))

    def _check_placement(self, ops: list[placement_check.Op]) -> None:
        if not self._topology.found.remote_devices:  # compiled elsewhere
            placement_check.check_replicas(ops, self._topology.devices)

    def _run(self, function: Callable[..., Any], batch: Batch) -> Any:
        """Runs ``function`` on each replica's part of the batch: equal parts, in their order."""
        replicas = self._topology.replicas
        if replicas == 1 or not self._topology.on_cpus:
            return self._strategy.run(function, args=(batch,))

        def with_part(batch: Batch) -> Any:
            context = tf.distribute.get_replica_context()
            place = tf.cast(context.replica_id_in_sync_group, tf.int32) % replicas
            return function(batches.take(batches.cut(batch, replicas, -1), place))

        return self._strategy.run(with_part, args=(batch,))

    def _first(self, value: Any) -> tf.Tensor:
        """The value on one replica, of a value that is the same on all."""
        return self._strategy.experimental_local_results(value)[0]

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        """Sums values over all workers, which all call it and wait for each other."""
        if self._topology.workers == 1 or not self._topology.found.in_step:
            return list(values)
        return [float(value) for value in self._sum_graph(tf.constant(values, tf.float64))]

    def _sum(self, values: tf.Tensor) -> tf.Tensor:
        own = values / self._topology.replicas  # each of them adds it
        of_replicas = self._strategy.run(lambda: own)
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, of_replicas, axis=None)

    def _evaluate_batch(self, batch: Batch) -> tf.Tensor:
        sums = self._run(self._evaluate_replica, batch)
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

    def _evaluate_replica(self, batch: Batch) -> tf.Tensor:
        own = dict(zip(map(id, self._averaged), self._averages, strict=True))
        values = [tf.convert_to_tensor(own.get(id(each), each)) for each in self._stage.variables]
        outputs = self._stage.infer(values, batch.inputs)
        return self.objective.evaluation(outputs, batch)

    def _model_variables(self) -> dict[str, Variable]:
        averaged = zip(self._averaged, self._averages, strict=True)
        return unique(
            [
                *((f"model/{variable.path}", variable) for variable in self._model.variables),
                *slots.named(self._optimizer),
                *((f"ema/{variable.path}", average) for variable, average in averaged),
            ]
        )


@contextlib.contextmanager
def _without_constraints(weights: Sequence[keras.Variable]) -> Iterator[None]:
    """In this block, a Keras optimizer applies no constraints."""
    constraints = [weight.constraint for weight in weights]
    for weight in weights:
        weight.constraint = None
    try:
        yield
    finally:
        for weight, constraint in zip(weights, constraints, strict=True):
            weight.constraint = constraint


def _constrain(weight: tf.Variable, constraint: Callable[[tf.Tensor], tf.Tensor]) -> None:
    weight.assign(constraint(weight))
