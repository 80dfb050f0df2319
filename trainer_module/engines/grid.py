"""Workers x replicas x stages: a model cut over devices, copied within and between processes.

``tf.device`` around a forward pass and one gradient tape would leave the whole
backward pass on the first device. So each stage has a tape of its own, and its
vector-Jacobian product is taken under its device. No strategy of
``tf.distribute`` lets a replica own several devices; here each (replica, stage) is
a :class:`~stagecraft.trainer_module.engines.stage_replica.Cell` with plain variables, and
the cells of a stage sum their gradients in one collective, those of other workers with
them. What is the same on all replicas is then the same on all workers: that a step is skipped,
or by how much gradients are clipped, needs no word between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.input_data import Batch
from stagecraft.trainer_module.engines import feeding, placement
from stagecraft.trainer_module.engines.collectives import Group
from stagecraft.trainer_module.engines.replica_pipeline import Found, Row
from stagecraft.trainer_module.engines.stage_replica import COUNTERS, Cell
from stagecraft.trainer_module.engines.step_metrics import Figures, check_connected, evaluation_sums
from stagecraft.trainer_module.engines.strategy import BuildModel
from stagecraft.trainer_module.engines.training import Copies, TrainingEngine, Variable, unique
from stagecraft.trainer_module.engines.workers import Workers
from stagecraft.trainer_module.models.divisibility import examine
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.models.stages import partition
from stagecraft.trainer_module.models.stages.stage import Stage
from stagecraft.trainer_module.optimization import clipping, ema
from stagecraft.trainer_module.optimization.loss_scale import all_finite
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.settings import TrainingSettings


class GridEngine(TrainingEngine):
    """An :class:`~stagecraft.trainer_module.engines.base.Engine` of replicas and stages."""

    def __init__(
        self,
        topology: Topology,
        settings: TrainingSettings,
        total_steps: int,
        build_model: BuildModel,
    ):
        """Builds the model on the host, cuts it, and copies each stage to its devices.

        Args:
            topology: the devices, replica by replica.
            settings: of the training.
            total_steps: the schedule's length.
            build_model: builds, in the scope that it is given, a model of float32 images that
                gives logits ``[batch, classes]``.

        Raises:
            UserError: the model cannot be cut as asked.
        """
        super().__init__(settings, total_steps)
        train, parallel = settings.train, settings.parallel
        self._topology = topology
        self._workers = Workers(topology)
        self._template = build_model(tf.device("CPU:0"))
        dropout.key_layers(self._template, train.seed)
        self._workers.take_from_chief(self._template.variables)
        if topology.stages > 1 or parallel.memory_mb:
            self.plan = self._workers.make_plan(self._template, settings)
        cuts = self.plan.cuts if self.plan else []
        self._stages = [
            Stage(
                model,
                jit=parallel.jit,
                remat=parallel.remat,
                parts=parallel.parts,
                dtype=self._dtype,
            )
            for model in partition.split(self._template, cuts)
        ]
        examine.check(self._stages, parallel)
        self._parts = parallel.parts
        self._cells = [
            [
                Cell(stage, topology.device(replica, number), replica, number, train)
                for number, stage in enumerate(self._stages)
            ]
            for replica in range(topology.replicas)
        ]
        self._rows = [Row(row, settings, self._parts) for row in self._cells]
        self._groups = [
            Group([cell.device for cell in column], parallel.all_reduce, topology.workers)
            for column in zip(*self._cells, strict=True)
        ]

    # --- data ---

    def feed(self, dataset: tf.data.Dataset) -> Iterator[Batch]:
        """Iterator over this worker's rows of global batches, on the host."""
        return feeding.on_host(dataset)

    # --- training ---

    def _global_step(self, batch: Batch) -> tuple[Figures, tf.Tensor]:
        found = self._reduced(batch)
        figures = self._figures(found)
        finite = None
        if self._loss_scale:
            of_cells = []
            for cell, of_cell in zip(self._cells[0], found[0], strict=True):
                with cell.scope("finite"):
                    if of_cell.gradients:
                        of_cells.append(all_finite(of_cell.gradients))
            with tf.device("CPU:0"):
                finite = tf.reduce_all(tf.stack(of_cells))
        return figures, self._commit(finite, figures.loss, lambda: self._update(found))

    def _reduced(self, batch: Batch) -> list[list[Found]]:
        """Per replica and stage: sums over the global batch, the same on all of the replicas."""
        accumulate, scale = self._settings.parallel.accumulate, self._loss_scale
        factor = scale.value if scale else None
        values = [row.read() for row in self._rows]
        # Row-major: replica by replica, in each turn by turn, in each microbatch by microbatch.
        shape = [self._topology.replicas, accumulate, self._settings.parallel.microbatches, -1]
        with tf.device("CPU:0"):
            step = self._step.read_value()
            worker, workers = self._topology.rows
            size = self._settings.train.batch_size // workers
            rows = tf.range(worker * size, (worker + 1) * size, dtype=tf.int64)
            cut = [tf.reshape(part, [*shape, *part.shape[1:]]) for part in (*batch, rows)]

        def turn(index: tf.Tensor | int) -> list[list[Found]]:
            return [
                row.forward_and_back(
                    values[replica], [part[replica, index] for part in cut], step, factor
                )
                for replica, row in enumerate(self._rows)
            ]

        found = turn(0)
        if accumulate > 1:

            def body(index: tf.Tensor, sums: Any) -> Any:
                return index + 1, self._summed(sums, turn(index))

            with tf.control_dependencies(tf.nest.flatten(found)):
                second = tf.identity(1)  # else it would begin beside the first, and take its memory
            start = (second, found)
            found = tf.while_loop(
                lambda index, _: index < accumulate, body, start, parallel_iterations=1
            )[1]
        return [
            [self._all_reduce(replica, number, row[number], factor) for number in range(len(row))]
            for replica, row in enumerate(found)
        ]

    def _summed(self, sums: list[list[Found]], more: list[list[Found]]) -> list[list[Found]]:
        result = []
        for cells, row, other in zip(self._cells, sums, more, strict=True):
            added = []
            for cell, one, two in zip(cells, row, other, strict=True):
                with cell.scope("accumulate"):
                    added.append(one.plus(two))
            result.append(added)
        return result

    def _all_reduce(
        self, replica: int, number: int, found: Found, scale: tf.Tensor | None
    ) -> Found:
        """Sums over the replicas of all workers; the state becomes the mean over all parts."""
        with self._cells[replica][number].scope("reduce"):
            means = {
                index: value / self._parts
                for index, value in found.changed.items()
                if value.dtype.is_floating
            }
            summed = self._groups[number].all_reduce(
                replica, [*found.gradients, *means.values(), *found.figures]
            )
            count = len(found.gradients)
            gradients, rest = summed[:count], summed[count:]
            if scale is not None:
                gradients = clipping.scaled(gradients, 1 / scale)
            changed = found.changed | dict(zip(means, rest, strict=False))
            return Found(gradients, changed, rest[len(means) :])

    def _figures(self, found: list[list[Found]]) -> Figures:
        """Of the global batch: the stages' penalties are part of the loss."""
        with tf.device("CPU:0"):
            return Figures(
                tf.add_n([of_cell.figures[0] for of_cell in found[0]]),
                tf.identity(found[0][-1].figures[1]),
            )

    def _update(self, found: list[list[Found]]) -> None:
        """Applies the gradients and writes the state, in every cell by itself."""
        train = self._settings.train
        check_connected([each for cell in self._cells[0] for each in cell.connected])
        with tf.device("CPU:0"):
            step = self._step.read_value()
            rate = self._rate(step)
            decay = ema.decay_at(train.ema_decay, step + 1)
        for row, of_replica in zip(self._cells, found, strict=True):
            by = self._clip_factor(row, of_replica)
            for cell, of_cell in zip(row, of_replica, strict=True):
                with cell.scope("update"):
                    gradients = of_cell.gradients
                    if by is not None:
                        gradients = clipping.scaled(gradients, by)
                    cell.update(gradients, of_cell.changed, rate, step)
                    if train.ema_decay:
                        cell.follow(decay)

    def _clip_factor(self, row: list[Cell], found: list[Found]) -> tf.Tensor | None:
        """Over all stages of a replica; equal on all replicas, whose gradients are equal."""
        clip_norm = self._settings.train.clip_norm
        if not clip_norm:
            return None
        squares = []
        for cell, of_cell in zip(row, found, strict=True):
            with cell.scope("norm"):
                if of_cell.gradients:
                    squares.append(clipping.squared_norm(of_cell.gradients))
        with row[0].scope("norm"):
            return clipping.factor(tf.add_n(squares), clip_norm)

    def _gradients(self, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        found = self._reduced(batch)
        gradients = {
            variable.path: gradient
            for cell, of_cell in zip(self._cells[0], found[0], strict=True)
            for variable, gradient in zip(cell.weights, of_cell.gradients, strict=True)
        }
        return self._figures(found).loss, gradients

    def _check_placement(self, ops: list[placement.Op]) -> None:
        # Nothing goes back through a place where integers are alive.
        passes_back = self._rows[0].passes_back
        reached = [all(passes_back[k + 1 :]) for k in range(len(self._stages))]
        placement.check_cells(
            ops,
            {
                (replica, stage): cell.device
                for replica, row in enumerate(self._cells)
                for stage, cell in enumerate(row)
            },
            backward=[
                (replica, stage)
                for replica, row in enumerate(self._cells)
                for stage, cell in enumerate(row)
                if reached[stage] and (cell.weights or passes_back[stage])
            ],
        )

    # --- evaluation ---

    def _evaluate_batch(self, batch: Batch) -> tf.Tensor:
        with tf.device("CPU:0"):
            shape = [self._topology.replicas, -1]
            cut = Batch(*(tf.reshape(part, [*shape, *part.shape[1:]]) for part in batch))
        sums = []
        for replica, row in enumerate(self._cells):
            part = Batch(*(field[replica] for field in cut))
            hidden = part.images
            for cell in row:
                with cell.scope("evaluate"):
                    state = [tf.convert_to_tensor(variable) for variable in cell.state]
                    hidden = cell.stage.infer(cell.averaged(), state, tf.identity(hidden))
            with row[-1].scope("evaluate"):
                sums.append(evaluation_sums(hidden, part, self._dtype))
        with tf.device("CPU:0"):
            return self._workers.all_reduce(tf.add_n(sums))

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        """The sum over the workers of what each gives; all call it, and wait for each other."""
        return self._workers.sum(values)

    # --- state ---

    def weights(self) -> dict[str, np.ndarray]:
        """Variable path -> value; averaged weights where EMA is on."""
        values: dict[str, np.ndarray] = {}
        for cell in self._cells[0]:
            values |= {v.path: v.numpy() for v in (*cell.weights, *cell.state)}
            shadows = zip(cell.weights, cell.shadows, strict=False)
            values |= {variable.path: shadow.numpy() for variable, shadow in shadows}
        return values

    def _model_variables(self) -> dict[str, Variable]:
        """By the names that an engine of one stage gives them."""
        shared: dict[str, list[Any]] = {}
        own = []
        for column in zip(*self._cells, strict=True):
            for same in zip(*(cell.named() for cell in column), strict=True):
                name, variables = same[0][0], [variable for _, variable in same]
                if name in COUNTERS:  # each stage's optimizer has its own
                    shared.setdefault(name, []).extend(variables)
                else:
                    own.append((name, Copies(variables)))
        return unique([*((name, Copies(all_)) for name, all_ in shared.items()), *own])
