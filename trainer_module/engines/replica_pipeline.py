"""A replica: a row of cells, through which microbatches go forward and back.

In the order of :mod:`stagecraft.trainer_module.planning.schedule`, which draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.engines.stage_replica import Cell
from stagecraft.trainer_module.engines.step_metrics import (
    connected,
    example_losses,
    figures_dtype,
    right_answers,
)
from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.settings import TrainingSettings

Values = tuple[list[tf.Tensor], list[tf.Tensor]]
"""Weights and state of a cell."""


class Found(NamedTuple):
    """What a part of the global batch comes to in one cell: all of it is summed over the parts."""

    gradients: list[tf.Tensor]
    changed: dict[int, tf.Tensor]
    figures: list[tf.Tensor]
    """``[penalty]``; in the last stage ``[loss, right answers]``. The stages' first add up to the
    loss."""

    def plus(self, other: Found) -> Found:
        """The sum; of integers, the later one."""
        return tf.nest.map_structure(
            lambda one, two: one + two if one.dtype.is_floating else two, self, other
        )


class Row:
    """The cells of a replica, and their passes over its part of a batch."""

    def __init__(self, cells: Sequence[Cell], settings: TrainingSettings, parts: int):
        """Prepares; nothing is computed.

        Args:
            cells: by stage.
            settings: of the training.
            parts: into how many the global batch is divided, over all replicas.
        """
        self.cells = cells
        self._train = settings.train
        self._dtype = figures_dtype(settings)
        parallel = settings.parallel
        self._passes = schedule.in_order(parallel.schedule, parallel.microbatches, len(cells))
        self._parts = parts
        self.passes_back = [
            any(cell.weights for cell in cells[:number])
            and "float" in cell.stage.model.inputs[0].dtype
            for number, cell in enumerate(cells)
        ]
        """Per stage: whether the one before it wants the gradient of what comes in."""

    def read(self) -> list[Values]:
        """Weights and state of all cells, read once a step."""
        return [cell.read() for cell in self.cells]

    def forward_and_back(
        self,
        values: Sequence[Values],
        batch: Sequence[tf.Tensor],
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> list[Found]:
        """All microbatches forward and backward; per stage what they come to.

        Across stages the data decide what waits for what. Within a stage, each pass waits for the
        one before it: else the executor would take turns between all microbatches, and all would
        leave the stage together.

        Args:
            values: of :meth:`read`.
            batch: images, labels, weights and rows, each ``[microbatches, examples, ...]``.
            step: steps done before this one.
            scale: of the loss, for gradients that fit into float16; None: 1.
        """
        images, *rest = batch
        passed: dict[tuple[int, int], _Passed] = {}
        incoming: dict[tuple[int, int], list[tf.Tensor]] = {}
        found: dict[int, Found] = {}
        latest: list[list[tf.Tensor]] = [[] for _ in self.cells]
        for way, k, m in self._passes:
            with self.cells[k].scope(f"{way}{m}", after=latest[k]):
                if way == schedule.FORWARD:
                    came = passed[k - 1, m].outputs if k else images[m]
                    inputs = tf.identity(came)  # the copy on this device, which the tape watches
                    with tf.control_dependencies([inputs]):
                        passed[k, m] = self._forward(
                            k, values[k], inputs, [part[m] for part in rest], step
                        )
                    latest[k] = [passed[k, m].outputs]
                    continue
                there = passed.pop((k, m))
                wanted = [there.inputs] if self.passes_back[k] else []
                arrived = [tf.identity(each) for each in incoming.pop((k, m), [])]
                with tf.control_dependencies(arrived):
                    gradients = self._backward(k, there, [*values[k][0], *wanted], arrived, scale)
                latest[k] = list(gradients)
                if wanted:
                    back = gradients.pop()
                    incoming[k - 1, m] = [back] if self.passes_back[k] else []
            with self.cells[k].scope("accumulate"):
                new = Found(gradients, there.changed, self._figures(there))
                found[k] = found[k].plus(new) if k in found else new
        return [found[k] for k in range(len(self.cells))]

    def _forward(
        self,
        number: int,
        values: Values,
        inputs: tf.Tensor,
        rest: Sequence[tf.Tensor],
        step: tf.Tensor,
    ) -> _Passed:
        """A microbatch through a cell, on its device."""
        labels, weights, rows = rest
        losses = right = None
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values[0])
            if inputs.dtype.is_floating:
                tape.watch(inputs)
            result = self.cells[number].stage(*values, inputs, step, rows)
            if number == len(self.cells) - 1:
                smoothing = self._train.label_smoothing
                losses = example_losses(result.outputs, labels, weights, smoothing, self._dtype)
                right = right_answers(result.outputs, labels, weights, self._dtype)
        return _Passed(tape, inputs, *result, losses, right)

    def _backward(
        self,
        number: int,
        passed: _Passed,
        sources: Sequence[tf.Tensor],
        incoming: Sequence[tf.Tensor],
        scale: tf.Tensor | None,
    ) -> list[tf.Tensor]:
        """The vector-Jacobian product of a cell: gradients of its sources.

        Args:
            number: of the cell.
            passed: the way forward.
            sources: the weights, and the inputs where a stage before this one wants them.
            incoming: gradient of the outputs, from the stage after this one; of the last, none.
            scale: of the loss.
        """
        if not sources:
            return []
        targets, seeds = [*([passed.outputs] if incoming else [])], [*incoming]
        for value, divisor in self._parts_of_loss(passed):
            targets.append(value)
            one = tf.ones_like(value) if scale is None else tf.cast(scale, value.dtype)
            seeds.append(one / divisor)
        found = passed.tape.gradient(targets, list(sources), output_gradients=seeds)
        gradients, has_gradient = connected(found, sources)
        cell = self.cells[number]
        cell.connected = has_gradient[: len(cell.weights)]
        # Nothing goes back through a gradient that a layer stops.
        self.passes_back[number] &= all(has_gradient[len(cell.weights) :])
        return gradients

    def _figures(self, passed: _Passed) -> list[tf.Tensor]:
        values = [value / divisor for value, divisor in self._parts_of_loss(passed)]
        loss = tf.add_n([tf.cast(value, self._dtype) for value in values])
        return [loss] if passed.right is None else [loss, passed.right]

    def _parts_of_loss(self, passed: _Passed) -> list[tuple[tf.Tensor, int]]:
        """Sums, and what each is divided by to be a part of the global batch's loss."""
        parts = [(passed.penalty, self._parts)]
        if passed.losses is not None:
            parts.append((passed.losses, self._train.batch_size))
        return parts


class _Passed(NamedTuple):
    """A microbatch's way forward through a cell, kept for the way back."""

    tape: tf.GradientTape
    inputs: tf.Tensor
    outputs: tf.Tensor
    changed: dict[int, tf.Tensor]
    penalty: tf.Tensor
    losses: tf.Tensor | None
    """Sum over the examples, and"""
    right: tf.Tensor | None
    """right answers: in the last stage."""
