"""The metrics of a step and of an evaluation, and which weights they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.data.input_data import Batch
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
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

    With a loss scale, the step did not change the weights. Without one, the weights are lost. The
    step counts from 1; its loss is finite if only a gradient is not.
    """

    def __init__(self, step: int, loss: float):
        super().__init__(f"loss {loss} at step {step}")
        self.step = step
        self.loss = loss


class StepMetrics(NamedTuple):
    """Metrics of one step over a global batch."""

    loss: tf.Tensor
    """Scalar, mean over the global batch; float64 where the training is, else float32."""
    num_correct: tf.Tensor
    """Scalar of the same dtype: examples whose largest logit is their label's."""


def metrics_dtype(settings: TrainingSettings) -> tf.DType:
    """Dtype of losses and counts: float64 in a float64 training, otherwise float32."""
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


def cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    smoothing: float = 0.0,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """Softmax cross entropy of each example, in nats: ``[batch]``.

    With ``smoothing`` the target is ``1 - smoothing`` on the label plus
    ``smoothing / classes`` on every class (Szegedy et al. 2016, section 7).

    Args:
        logits: float ``[batch, classes]``.
        labels: int64 ``[batch]``.
        dtype: float32 or float64: what logits of less precision are cast to.
    """
    if logits.dtype != tf.float64:
        logits = tf.cast(logits, dtype)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if smoothing:
        uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
        losses = (1 - smoothing) * losses + smoothing * uniform
    return losses


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


def accumulate(part: Callable[[Any], Any], steps: int, add: Callable[[Any, Any], Any]) -> Any:
    """Sums over accumulation steps, one after the other: no two hold activations at once."""

    def body(index: tf.Tensor, sums: Any) -> Any:
        return index + 1, add(sums, part(index))

    first = part(0)  # by itself: it shows which state changes
    if steps == 1:
        return first
    with tf.control_dependencies(tf.nest.flatten(first)):
        second = tf.identity(1)  # waits for the first part, so that only one part is in memory
    return tf.while_loop(lambda i, _: i < steps, body, (second, first), parallel_iterations=1)[1]


def plus(one: Any, other: Any) -> Any:
    """The sum of each tensor in a structure; of integers, the later one."""
    return tf.nest.map_structure(lambda a, b: a + b if a.dtype.is_floating else b, one, other)
