"""The metrics of a step and of an evaluation, and which weights they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.data.input_data import Batch
from stagecraft.trainer_module.models.layers.refusal import ModelRefusedError
from stagecraft.trainer_module.optimization.losses import cross_entropy
from stagecraft.trainer_module.settings import TrainingSettings


class Metrics(NamedTuple):
    """Metrics over a number of examples."""

    loss: float
    """Mean loss in nats: training adds label smoothing and the model's penalties to the cross
    entropy, evaluation does not."""
    accuracy: float
    """Share of the examples whose class is the one with the largest logit, 0 to 1."""
    examples: int


class NonFiniteLossError(Exception):
    """The loss of a step, or a gradient, is infinite or not a number.

    With a loss scale, the step left the weights as they were; without one, they are lost. The
    step counts from 1; its loss is finite if only a gradient is not.
    """

    def __init__(self, step: int, loss: float):
        super().__init__(f"loss {loss} at step {step}")
        self.step = step
        self.loss = loss

    @property
    def updates(self) -> int:
        """Updates of the weights before this loss."""
        return self.step - 1


class StepMetrics(NamedTuple):
    """Of one step over a global batch."""

    loss: tf.Tensor
    """Scalar, mean over the global batch; float64 where the training is, else float32."""
    num_correct: tf.Tensor
    """Scalar of the same dtype: examples whose largest logit is their label's."""


def metrics_dtype(settings: TrainingSettings) -> tf.DType:
    """Of losses and counts: float64 in a training in float64, else float32."""
    return tf.float64 if settings.parallel.precision == "float64" else tf.float32


def check_connected(connected: Sequence[bool]) -> None:
    """Refuses a model none of whose weights has a gradient, as Keras's optimizers do."""
    if not any(connected):
        raise ModelRefusedError(
            "the model",
            "returns logits that do not depend on its trainable weights, so no gradient reaches "
            "the weights",
            "look for a stop_gradient, an integer or a string between weights and logits",
        )


def example_losses(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, smoothing: float, dtype: tf.DType
) -> tf.Tensor:
    """Sum over the examples, each by its weight: a scalar, at least as precise as ``dtype``."""
    losses = cross_entropy(logits, labels, smoothing, dtype)
    return tf.reduce_sum(losses * tf.cast(weights, losses.dtype))


def num_correct(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Sum of the weights of the examples whose largest logit is their label's: a scalar."""
    correct = tf.equal(tf.argmax(logits, axis=-1), labels)
    return tf.reduce_sum(tf.cast(correct, dtype) * tf.cast(weights, dtype))


def evaluation_sums(logits: tf.Tensor, batch: Batch, dtype: tf.DType) -> tf.Tensor:
    """``[sum of losses, correct predictions, examples]``, of ``dtype``."""
    losses = example_losses(logits, batch.labels, batch.weights, 0.0, dtype)
    correct = num_correct(logits, batch.labels, batch.weights, dtype)
    return tf.stack([tf.cast(losses, dtype), correct, tf.cast(tf.reduce_sum(batch.weights), dtype)])


def connected(
    gradients: Sequence[tf.Tensor | None], sources: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], list[bool]]:
    """Gradients, zeros where there is none, and where there is one.

    An optimizer of Keras leaves a weight alone that has no gradient
    (``BaseOptimizer._filter_empty_gradients``): it has neither momentum nor decay.
    """
    filled = [
        tf.zeros_like(source) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, source in zip(gradients, sources, strict=True)
    ]
    return filled, [gradient is not None for gradient in gradients]
