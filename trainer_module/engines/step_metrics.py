"""The metrics of a step and of an evaluation, and which weights they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.settings import TrainingSettings


class Metrics(NamedTuple):
    """Metrics over a number of examples."""

    loss: float
    """Mean loss: training adds the model's penalties, and for pictures label smoothing; evaluation
    does not."""
    values: dict[str, float]
    """The metrics of the task, by name."""
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
    sums: tf.Tensor
    """The sums of the task's metrics: ``[size]``, of the dtype of ``Objective``."""


def metrics_dtype(settings: TrainingSettings) -> tf.DType:
    """Dtype of losses and counts: float64 in a float64 training, otherwise float32."""
    return tf.float64 if settings.parallel.precision == "float64" else tf.float32


def check_connected(connected: Sequence[bool]) -> None:
    """Refuses a model none of whose weights has a gradient, as Keras's optimizers do."""
    if not any(connected):
        raise ModelRefusedError(
            "the model",
            "returns outputs that do not depend on its trainable weights, so no gradient reaches "
            "the weights",
            "look for a stop_gradient, an integer or a string between weights and outputs",
        )


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
    for gradient, source in zip(filled, sources, strict=True):
        gradient.set_shape(source.shape)  # XLA loses the shape of an embedding's gradient
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
