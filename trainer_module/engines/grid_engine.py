"""Workers x replicas x stages x shards: a model cut over devices, within and between processes.

``tf.device`` around a forward pass and one gradient tape would leave the whole backward pass on the
first device. So each stage has a tape of its own, and its vector-Jacobian product is taken under
its device. No strategy of ``tf.distribute`` lets a replica own several devices; here each (replica,
stage) is a :class:`~.stage_replica.StageReplica` with plain variables. The replicas of a stage, on
all workers, sum their gradients in one collective. All workers then decide the same without further
messages: whether to skip a step, and by how much to clip gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines import divisibility, placement_check, step_metrics
from stagecraft.trainer_module.engines.collectives import FromChief, Workers
from stagecraft.trainer_module.engines.engine import Copies, Engine, Variable, unique
from stagecraft.trainer_module.engines.gradient_sums import GradientSums
from stagecraft.trainer_module.engines.replica_pipeline import (
    MicrobatchSums,
    ReplicaPipeline,
    Traces,
)
from stagecraft.trainer_module.engines.stage_replica import ReplicaSlices, StageReplica
from stagecraft.trainer_module.engines.strategy_engine import BuildModel
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.optimization import averages
from stagecraft.trainer_module.optimization.gradients import clip_factor, scaled, squared_norm
from stagecraft.trainer_module.optimization.loss_scale import all_finite
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.pipeline_parallel.stage import EqualSegments, Stage
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards
from stagecraft.trainer_module.tensor_parallel.split import Joined, Split

_MakePlan = Callable[[keras.Model, TrainingSettings, Topology, FromChief], Plan]
"""Cuts a model into stages, on all workers alike."""


class GridEngine(Engine):
    """An engine of replicas and stages."""

    def __init__(
        self,
        topology: Topology,
        settings: TrainingSettings,
        total_steps: int,
        build_model: BuildModel,
        make_plan: _MakePlan,
    ):
        """Builds the model on the host, cuts it, and copies each stage to its devices."""
        super().__init__(settings, total_steps)
        train, parallel = settings.train, settings.parallel
        self._topology = topology
        self._workers = Workers(topology)
        self._template = build_model(tf.device("CPU:0"))
        dropout.key_layers(self._template, train.seed)
        self._workers.take_from_chief(self._template.variables)
        if topology.stages * topology.shards > 1 or parallel.memory_mb:
            from_chief = self._workers.from_chief
            self.plan = make_plan(self._template, settings, topology, from_chief)
        cuts = self.plan.cuts if self.plan else []
        models = partition.split(self._template, cuts)
        self.shards = ModelShards(models, parallel.shards) if parallel.shards > 1 else None
        device_type = tf.DeviceSpec.from_string(topology.device(0, 0, 0)).device_type
        equal = None
        if _shares_blocks(parallel):
            equal = EqualSegments(self._template, str(device_type))
        self._stages = [
            Stage(
                model,
                parallel.jit,
                parallel.remat,
                parallel.parts,
                self._dtype,
                models[:number],
                self.shards,
                equal,
            )
            for number, model in enumerate(models)
        ]
        divisibility.check(self._stages, parallel)
        self._divides = parallel.zero > 0
        divided = topology.replicas if self._divides else 1
        self._grid: list[list[StageReplica]] = []
        for replica in range(topology.replicas):
            row: list[StageReplica] = []
            for number, stage in enumerate(self._stages):
                for shard in range(parallel.shards):
                    device = topology.device(replica, number, shard)
                    row.append(
                        StageReplica(stage, device, replica, number, train, row, divided, shard)
                    )
            self._grid.append(row)
        traces: Traces = {}
        self._pipelines = [
            # The traces of shards name their devices, which each replica has for itself.
            ReplicaPipeline(
                row, settings, parallel.parts, self.objective, {} if self.shards else traces
            )
            for row in self._grid
        ]
        worker, workers = topology.rows
        size = train.batch_size // workers
        with tf.device("CPU:0"):
            # No constant: TensorFlow would make a copy of each stage for the rows of each pass.
            self._rows = tf.Variable(
                np.arange(worker * size, (worker + 1) * size), trainable=False, dtype=tf.int64
            )
        self._phases = variable_patterns.phases(
            train, [each.path for each in self._template.trainable_variables], total_steps
        )
        self._sums = GradientSums(self._grid, parallel, topology.workers)

    def _freeze(self, frozen: Collection[str]) -> None:
        for pipeline in self._pipelines:
            pipeline.freeze(frozen)

    def _global_step(self, batch: Batch) -> tuple[step_metrics.StepMetrics, tf.Tensor]:
        sums = self._reduced(batch)
        metrics = self._metrics(sums)
        finite = None
        if self._loss_scale:
            finite_stages = []
            for stage_replica, partial in self._with_gradients(0, sums):
                with stage_replica.scope("finite"):
                    finite_stages.append(all_finite(partial.gradients))
            with tf.device("CPU:0"):
                finite = tf.reduce_all(tf.stack(finite_stages))
        return metrics, self._commit(finite, metrics.loss, lambda: self._update(sums))

    def _reduced(self, batch: Batch) -> list[list[MicrobatchSums]]:
        """Per replica and shard: sums over the global batch, the same on all replicas."""
        steps, scale = self._settings.parallel.accumulate, self._loss_scale
        factor = scale.value if scale else None
        numbers = range(len(self._stages))
        values = [[pipeline.read(number) for number in numbers] for pipeline in self._pipelines]
        # Replica by replica, in each step by accumulation step, in each microbatch by microbatch.
        shape = [self._topology.replicas, steps, self._settings.parallel.microbatches, -1]
        with tf.device("CPU:0"):
            step = self._counted(self._step.read_value())
            cut, cut_rows = batches.cut(batch, *shape), tf.reshape(self._rows, shape)

        def accumulation_step(index: tf.Tensor | int) -> list[list[MicrobatchSums]]:
            return [
                pipeline.forward_and_back(
                    values[replica],
                    batches.take(cut, replica, index),
                    cut_rows[replica, index],
                    step,
                    factor,
                )
                for replica, pipeline in enumerate(self._pipelines)
            ]

        sums = step_metrics.accumulate(accumulation_step, steps, self._sums.plus)
        return self._sums.over_replicas(sums, factor)

    def _with_gradients(
        self, replica: int, sums: list[list[MicrobatchSums]]
    ) -> list[tuple[StageReplica, MicrobatchSums]]:
        """The parts that together have all gradients once: a replica's stages, or all slices."""
        rows = zip(self._grid, sums, strict=True)
        return [
            pair
            for index, row in enumerate(rows)
            if self._divides or index == replica
            for pair in zip(*row, strict=True)
            if pair[1].gradients
        ]

    def _metrics(self, sums: list[list[MicrobatchSums]]) -> step_metrics.StepMetrics:
        """Metrics of the global batch; the loss includes the stages' penalties."""
        of_stages = [partial.metrics for partial in sums[0] if partial.metrics]
        with tf.device("CPU:0"):
            return step_metrics.StepMetrics(
                tf.add_n([metrics[0] for metrics in of_stages]), tf.identity(of_stages[-1][1])
            )

    def _update(self, sums: list[list[MicrobatchSums]]) -> None:
        """Applies the gradients and writes the state, on every stage replica by itself."""
        train = self._settings.train
        step_metrics.check_connected(
            [each for stage_replica in self._grid[0] for each in stage_replica.has_gradient]
        )
        with tf.device("CPU:0"):
            step = self._step.read_value()
            rate = self._rate(step)
            decay = self._decay(step + 1)
            due = averages.pull_is_due(train.lookahead or 1, step + 1)
            step = self._counted(step)
        for replica, (row, of_replica) in enumerate(zip(self._grid, sums, strict=True)):
            by = self._clip_factor(replica, sums)
            for stage_replica, partial in zip(row, of_replica, strict=True):
                with stage_replica.scope("update"):
                    gradients = partial.gradients
                    if by is not None:
                        gradients = scaled(gradients, by)
                    stage_replica.update(gradients, partial.changed, rate, step)
        for column in zip(*self._grid, strict=True) if self._divides else ():
            for stage_replica in column:
                stage_replica.gather(column)
        for stage_replica in itertools.chain(*self._grid):
            with stage_replica.scope("update"):
                stage_replica.update_averages(decay, due)

    def _clip_factor(self, replica: int, sums: list[list[MicrobatchSums]]) -> tf.Tensor | None:
        """Clipping factor for all stages of a replica. All replicas compute the same factor."""
        clip_norm = self._settings.train.clip_norm
        if not clip_norm:
            return None
        squares = []
        for stage_replica, partial in self._with_gradients(replica, sums):
            with stage_replica.scope("norm"):
                squares.append(squared_norm(partial.gradients))
        with self._grid[replica][0].scope("norm"):
            return clip_factor(tf.add_n(squares), clip_norm)

    def _gradients(self, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        sums = self._reduced(batch)
        slices: dict[str, list[tf.Tensor]] = {}
        splits: dict[str, Split] = {}
        for stage_replica, *column in zip(self._grid[0], *sums, strict=True):
            splits |= stage_replica.splits
            of_replicas = zip(*(partial.gradients for partial in column), strict=True)
            for variable, parts in zip(stage_replica.weights, of_replicas, strict=True):
                with tf.device("CPU:0"):
                    own = parts[0]
                    if self._divides:
                        own = ReplicaSlices(variable.shape, len(parts)).join(parts)
                    slices.setdefault(variable.path, []).append(tf.identity(own))
        with tf.device("CPU:0"):
            gradients = {
                path: splits[f"model/{path}"].join(parts) if len(parts) > 1 else parts[0]
                for path, parts in slices.items()
            }
        return self._metrics(sums).loss, gradients

    def _check_placement(self, ops: list[placement_check.Op]) -> None:
        # Gradients do not pass a boundary where a tensor of integers is alive.
        passes_back = self._pipelines[0].passes_back
        reached = [all(map(any, passes_back[k + 1 :])) for k in range(len(self._stages))]
        placed = {
            (replica, *divmod(place, self._settings.parallel.shards)): stage_replica
            for replica, row in enumerate(self._grid)
            for place, stage_replica in enumerate(row)
        }
        # The other shards of a stage without divided layers have nothing to do.
        placed = {place: each for place, each in placed.items() if each.trainable or not place[2]}
        placement_check.check_stage_replicas(
            ops,
            {place: stage_replica.device for place, stage_replica in placed.items()},
            backward=[
                place
                for place, stage_replica in placed.items()
                if reached[place[1]]
                # A gradient that only travels through a stage has no ops of its own.
                and (
                    any(stage_replica.connected)
                    or (passes_back[place[1]] == [True] and not place[2])
                )
            ],
        )

    def _evaluate_batch(self, batch: Batch) -> tf.Tensor:
        with tf.device("CPU:0"):
            cut = batches.cut(batch, self._topology.replicas, -1)
        sums = []
        for replica, pipeline in enumerate(self._pipelines):
            part = batches.take(cut, replica)
            hidden = part.inputs
            last = len(self._stages) - 1
            for number in range(last + 1):
                with pipeline.scope(number, "evaluate"):
                    hidden = pipeline.infer(number, hidden)
                    if number == last:
                        sums.append(self.objective.evaluation(hidden, part))
        with tf.device("CPU:0"):
            return self._workers.all_reduce(tf.add_n(sums))

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        """Sums values over all workers, which all call it and wait for each other."""
        return self._workers.sum(values)

    def _model_variables(self) -> dict[str, Variable]:
        """Variables of the model, with the names of an engine without stages."""
        shared: dict[str, list[Any]] = {}
        own: list[tuple[str, Variable]] = []
        slices: dict[str, list[list[Any]]] = {}
        splits: dict[str, Split] = {}
        for column in zip(*self._grid, strict=True):
            splits |= column[0].splits
            for same in zip(*(stage_replica.named() for stage_replica in column), strict=True):
                name, variables = same[0][0], [variable for _, variable in same]
                if name in column[0].shared:  # each stage's optimizer has its own
                    shared.setdefault(name, []).extend(variables)
                    continue
                if name in column[0].slot_slices:
                    variables = [Joined(variables, column[0].slot_slices[name])]
                if name in splits:
                    slices.setdefault(name, []).append(variables)
                else:
                    own.append((name, variables[0] if len(variables) == 1 else Copies(variables)))
        joined = [
            (name, Copies(Joined(of_shards, splits[name]) for of_shards in zip(*all_, strict=True)))
            for name, all_ in slices.items()
        ]
        return unique([*((name, Copies(all_)) for name, all_ in shared.items()), *own, *joined])


def _shares_blocks(parallel: ParallelSettings) -> bool:
    """Whether equal blocks of a model share functions.

    Not where XLA compiles a stage as a whole, or shards divide it.
    """
    return not parallel.jit and parallel.shards == 1
