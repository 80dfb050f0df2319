"""A replica: stages in a row, through which microbatches go forward and back.

In the order of :mod:`stagecraft.trainer_module.planning.schedule`, which draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines import step_metrics
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.engines.stage_replica import StageReplica
from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.settings import TrainingSettings

Values = tuple[list[tf.Tensor], list[tf.Tensor]]
"""Weights and state of a stage."""


class PartialSums(NamedTuple):
    """What one stage adds up over the parts of the global batch."""

    gradients: list[tf.Tensor]
    changed: dict[int, tf.Tensor]
    metrics: list[tf.Tensor]
    """``[penalty]``; in the last stage ``[loss, Objective.sums]``. The sum of all stages' first
    values is the loss."""


class ReplicaPipeline:
    """The stages of a replica, and their passes over its part of a batch."""

    def __init__(
        self,
        stages: Sequence[StageReplica],
        settings: TrainingSettings,
        parts: int,
        objective: Objective,
    ):
        """``parts``: into how many the global batch is divided, over all replicas."""
        self.stages = stages
        self._objective = objective
        self._train = settings.train
        self._dtype = step_metrics.metrics_dtype(settings)
        parallel = settings.parallel
        self._passes = schedule.in_order(parallel.schedule, parallel.microbatches, len(stages))
        self._parts = parts
        self.passes_back = [
            any(stage.weights for stage in stages[:number])
            and "float" in stage.stage.model.inputs[0].dtype
            for number, stage in enumerate(stages)
        ]
        """Per stage: whether the stage before it needs the gradient of its inputs."""

    def forward_and_back(
        self,
        values: Sequence[Values],
        batch: Batch,
        rows: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> list[PartialSums]:
        """All microbatches forward and backward; the sums of each stage.

        Data dependencies order the passes across stages. Within a stage, each pass waits for the
        one before it: otherwise the executor would alternate between all microbatches.

        Args:
            batch: each tensor ``[microbatches, examples, ...]``.
            rows: int64 ``[microbatches, examples]``, the examples' rows in the global batch.
            scale: of the loss, for gradients that fit into float16; None: 1.
        """
        passed: dict[tuple[int, int], _Forward] = {}
        incoming: dict[tuple[int, int], list[tf.Tensor]] = {}
        sums: dict[int, PartialSums] = {}
        latest: list[list[tf.Tensor]] = [[] for _ in self.stages]
        for direction, k, m in self._passes:
            with self.stages[k].scope(f"{direction}{m}", after=latest[k]):
                if direction == schedule.FORWARD:
                    part = batches.take(batch, m)
                    source = passed[k - 1, m].outputs if k else part.inputs
                    inputs = tf.identity(source)  # the copy on this device, which the tape watches
                    with tf.control_dependencies([inputs]):
                        passed[k, m] = self._forward(k, values[k], inputs, part, rows[m], step)
                    latest[k] = [passed[k, m].outputs]
                    continue
                forward = passed.pop((k, m))
                wanted = [forward.inputs] if self.passes_back[k] else []
                arrived = [tf.identity(each) for each in incoming.pop((k, m), [])]
                with tf.control_dependencies(arrived):
                    gradients = self._backward(k, forward, [*values[k][0], *wanted], arrived, scale)
                latest[k] = list(gradients)
                if wanted:
                    back = gradients.pop()
                    incoming[k - 1, m] = [back] if self.passes_back[k] else []
            with self.stages[k].scope("accumulate"):
                new = PartialSums(gradients, forward.changed, self._metrics(forward))
                sums[k] = step_metrics.plus(sums[k], new) if k in sums else new
        return [sums[k] for k in range(len(self.stages))]

    def _forward(
        self,
        number: int,
        values: Values,
        inputs: tf.Tensor,
        batch: Batch,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> _Forward:
        """The forward pass of a microbatch through a stage, on its device."""
        losses = sums = None
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values[0])
            if inputs.dtype.is_floating:
                tape.watch(inputs)
            result = self.stages[number].stage(*values, inputs, step, rows)
            if number == len(self.stages) - 1:
                losses = self._objective.loss(result.outputs, batch)
                sums = self._objective.sums(result.outputs, batch)
        return _Forward(tape, inputs, *result, losses, sums)

    def _backward(
        self,
        number: int,
        passed: _Forward,
        sources: Sequence[tf.Tensor],
        incoming: Sequence[tf.Tensor],
        scale: tf.Tensor | None,
    ) -> list[tf.Tensor]:
        """The vector-Jacobian product of a stage: gradients of its sources.

        ``sources``: the weights, and the inputs where the stage before needs their gradient;
        ``incoming``: gradient of the outputs, from the stage after this one; of the last, none.
        """
        if not sources:
            return []
        targets, seeds = [*([passed.outputs] if incoming else [])], [*incoming]
        for value, divisor in self._parts_of_loss(passed):
            targets.append(value)
            one = tf.ones_like(value) if scale is None else tf.cast(scale, value.dtype)
            seeds.append(one / divisor)
        raw = passed.tape.gradient(targets, list(sources), output_gradients=seeds)
        gradients, has_gradient = step_metrics.connected(raw, sources)
        stage = self.stages[number]
        stage.connected = has_gradient[: len(stage.weights)]
        # Nothing goes back through a gradient that a layer stops.
        self.passes_back[number] &= all(has_gradient[len(stage.weights) :])
        return gradients

    def _metrics(self, passed: _Forward) -> list[tf.Tensor]:
        values = [value / divisor for value, divisor in self._parts_of_loss(passed)]
        loss = tf.add_n([tf.cast(value, self._dtype) for value in values])
        return [loss] if passed.sums is None else [loss, passed.sums]

    def _parts_of_loss(self, passed: _Forward) -> list[tuple[tf.Tensor, int]]:
        """Sums and their divisors; the quotients are parts of the global batch's loss."""
        parts = [(passed.penalty, self._parts)]
        if passed.losses is not None:
            parts.append((passed.losses, self._train.batch_size))
        return parts


class _Forward(NamedTuple):
    """A microbatch's way forward through a stage, kept for the direction back."""

    tape: tf.GradientTape
    inputs: tf.Tensor
    outputs: tf.Tensor
    changed: dict[int, tf.Tensor]
    penalty: tf.Tensor
    losses: tf.Tensor | None
    """Sum over the examples, and"""
    sums: tf.Tensor | None
    """the sums of the metrics, in the last stage."""
