"""A part of the model as a pure function of tensors.

The Keras layers of a *template* are the code; weights and state come from outside, by
``keras.StatelessScope``. So one template serves any number of devices, nothing stateful is in
the graph of a microbatch (a write would order the microbatches, and with it undo their overlap),
and computing again from the same tensors gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module import dropout
from stagecraft.trainer_module.planning import partition
from stagecraft.trainer_module.remat import recomputed

Tensors = Sequence[tf.Tensor]


class Outputs(NamedTuple):
    """What a stage gives."""

    outputs: tf.Tensor
    """``[batch, ...]``."""

    state: dict[int, tf.Tensor]
    """Changed state: index in ``Stage.state`` -> next value."""

    penalty: tf.Tensor
    """Sum of the model's own losses (regularizers, ``add_loss``): a float32 or float64 scalar."""


class Stage:
    """A model, or a part of one, as a function."""

    def __init__(self, model: keras.Model, *, jit: bool = False, remat: bool = False):
        """Prepares the function; nothing is computed.

        Args:
            model: one input, one output. Its variables are read for their paths only.
            jit: compile it, and its gradient, with XLA.
            remat: keep only what goes in and out of about sqrt(n) segments of it, and compute the
                rest again in the backward pass.
        """
        self.model = model
        self.trainable: list[keras.Variable] = list(model.trainable_variables)
        self.state: list[keras.Variable] = list(model.non_trainable_variables)
        segments = partition.segments(model) if remat else [model]
        self._segments = [_Segment(segment, self, remat) for segment in segments]
        self._training = (
            tf.function(self._train, jit_compile=True, autograph=False) if jit else self._train
        )

    def __call__(
        self, weights: Tensors, state: Tensors, inputs: tf.Tensor, step: tf.Tensor, rows: tf.Tensor
    ) -> Outputs:
        """The forward pass of training.

        Args:
            weights: values for ``trainable``.
            state: values for ``state``.
            inputs: ``[batch, ...]``.
            step: int64 scalar, and
            rows: int64 ``[batch]``, the examples' places in the global batch: what random draws
                depend on.
        """
        return Outputs(*self._training(list(weights), list(state), inputs, step, rows))

    def infer(self, weights: Tensors, state: Tensors, inputs: tf.Tensor) -> tf.Tensor:
        """The forward pass of inference: ``[batch, ...]``."""
        pairs = zip([*self.trainable, *self.state], [*weights, *state], strict=True)
        with keras.StatelessScope(list(pairs)):
            return self.model(inputs, training=False)

    def _train(
        self, weights: list[Any], state: list[Any], inputs: Any, step: Any, rows: Any
    ) -> tuple[tf.Tensor, dict[int, tf.Tensor], tf.Tensor]:
        changed: dict[int, tf.Tensor] = {}
        penalties = []
        for segment in self._segments:
            inputs, now, penalty = segment(weights, state, inputs, step, rows)
            changed.update(now)
            penalties.append(penalty)
        return inputs, changed, tf.add_n(penalties)


class _Segment:
    """Layers between two cut points of a stage."""

    def __init__(self, model: keras.Model, stage: Stage, remat: bool):
        self._model = model
        self._weights = _indices(model.trainable_variables, stage.trainable)
        self._state = _indices(model.non_trainable_variables, stage.state)
        self._compute = recomputed(self._run) if remat else self._run

    def __call__(
        self, weights: list[Any], state: list[Any], inputs: Any, step: Any, rows: Any
    ) -> tuple[tf.Tensor, dict[int, tf.Tensor], tf.Tensor]:
        values = [weights[i] for i in self._weights] + [state[i] for i in self._state]
        outputs, changed, penalty = self._compute(inputs, step, rows, *values)
        return outputs, {self._state[i]: value for i, value in changed.items()}, penalty

    def _run(self, inputs: Any, step: Any, rows: Any, *values: Any) -> Any:
        model = self._model
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        pairs = list(zip(variables, values, strict=True))
        with keras.StatelessScope(pairs, collect_losses=True) as scope, dropout.drawing(step, rows):
            outputs = model(inputs, training=True)
            penalties = model.losses
        changed = {
            index: tf.convert_to_tensor(value)
            for index, variable in enumerate(model.non_trainable_variables)
            if (value := scope.get_current_value(variable)) is not None
            and value is not values[len(self._weights) + index]
        }
        dtype = tf.float64 if outputs.dtype == tf.float64 else tf.float32
        penalty = tf.add_n([tf.cast(p, dtype) for p in penalties] or [tf.zeros([], dtype)])
        return outputs, changed, penalty


def _indices(some: Sequence[keras.Variable], among: Sequence[keras.Variable]) -> list[int]:
    places = {id(variable): index for index, variable in enumerate(among)}
    return [places[id(variable)] for variable in some]
