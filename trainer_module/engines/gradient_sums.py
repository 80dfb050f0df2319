"""The sums of a step's gradients: over accumulation steps, tied weights, replicas and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.engines import step_metrics
from stagecraft.trainer_module.engines.collectives import Group, by_dtype
from stagecraft.trainer_module.engines.replica_pipeline import MicrobatchSums
from stagecraft.trainer_module.engines.stage_replica import StageReplica
from stagecraft.trainer_module.optimization.gradients import scaled
from stagecraft.trainer_module.settings import ParallelSettings

Grid = list[list[MicrobatchSums]]
"""Of each replica, the sums of its stages and their shards."""


class GradientSums:
    """The sums of replicas and stages, each in one collective for each stage."""

    def __init__(
        self, grid: Sequence[Sequence[StageReplica]], parallel: ParallelSettings, workers: int
    ):
        """``grid``: of each replica of this worker, its stages and their shards."""
        self._grid, self._parts, self._divides = grid, parallel.parts, parallel.zero > 0
        self._groups = [
            Group([each.device for each in column], parallel.all_reduce, workers)
            for column in zip(*grid, strict=True)
        ]

    def plus(self, sums: Grid, more: Grid) -> Grid:
        """The sums of two accumulation steps."""
        result = []
        for row in zip(self._grid, sums, more, strict=True):
            added = []
            for stage_replica, one, two in zip(*row, strict=True):
                with stage_replica.scope("accumulate"):
                    added.append(step_metrics.plus(one, two))
            result.append(added)
        return result

    def over_replicas(self, sums: Grid, scale: tf.Tensor | None) -> Grid:
        """Sums over the replicas of all workers, the same on all; the state becomes a mean.

        If replicas divide the optimizer slots, each has the gradients of its own slices.

        Args:
            sums: of the replicas of this worker; see ``MicrobatchSums``.
            scale: the loss scale, by which the gradients are divided.
        """
        tied = list(map(_with_tied, self._grid, sums))
        columns = list(zip(*tied, strict=True))
        return [
            [self._all_reduce(replica, *column, scale) for column in enumerate(columns)]
            for replica in range(len(tied))
        ]

    def _all_reduce(
        self, replica: int, number: int, column: Sequence[MicrobatchSums], scale: tf.Tensor | None
    ) -> MicrobatchSums:
        sums = column[replica]
        scattered = self._scatter(replica, number, column) if self._divides else None
        with self._grid[replica][number].scope("reduce"):
            own = sums.gradients if scattered is None else []
            means = {
                index: value / self._parts
                for index, value in sums.changed.items()
                if value.dtype.is_floating
            }
            summed = self._groups[number].all_reduce(
                replica, [*own, *means.values(), *sums.metrics]
            )
            gradients, rest = summed[: len(own)], summed[len(own) :]
            gradients = gradients if scattered is None else scattered
            if scale is not None:
                gradients = scaled(gradients, 1 / scale)
            changed = sums.changed | dict(zip(means, rest, strict=False))
            return MicrobatchSums(gradients, changed, rest[len(means) :])

    def _scatter(
        self, replica: int, number: int, column: Sequence[MicrobatchSums]
    ) -> list[tf.Tensor]:
        """The sums, over all replicas, of a replica's slices of the gradients."""
        owner, slices = self._grid[replica][number], []
        for row, sums in zip(self._grid, column, strict=True):
            with row[number].scope("scatter"):
                slices.append([owner.cut(gradient) for gradient in sums.gradients])
        with owner.scope("scatter"):
            return [tf.add_n(list(map(tf.identity, parts))) for parts in zip(*slices, strict=True)]


def over_strategy(context: Any, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The sums of tensors over the replicas of a strategy of ``tf.distribute``.

    Args:
        context: ``tf.distribute.ReplicaContext``, in which this is called.
    """
    return by_dtype(tensors, lambda each: context.all_reduce(tf.distribute.ReduceOp.SUM, each))


def _with_tied(row: Sequence[StageReplica], sums: Sequence[MicrobatchSums]) -> list[MicrobatchSums]:
    """Adds each gradient of a tied weight to that of the stage that holds the weight.

    The result has the gradients of the weights that each stage holds.
    """
    totals: dict[int, tf.Tensor] = {}
    connected: dict[int, bool] = {}
    for stage_replica, partial in zip(row, sums, strict=True):
        uses = zip(stage_replica.trained, stage_replica.holders, strict=True)
        for (weight, holder), gradient, has in zip(
            uses, partial.gradients, stage_replica.connected, strict=True
        ):
            key = id(weight)
            if holder is stage_replica:
                totals[key], connected[key] = gradient, has
                continue
            with holder.scope("tied"):
                totals[key] += tf.identity(gradient)
            connected[key] |= has
    result = []
    for stage_replica, partial in zip(row, sums, strict=True):
        held = stage_replica.held
        stage_replica.has_gradient = [connected[key] for key in held]
        result.append(partial._replace(gradients=[totals[key] for key in held]))
    return result
