"""Rematerialisation: activations that are computed again instead of kept.

``tf.recompute_grad`` is not used: around layers of Keras 3 it is silently wrong, because the
second computation draws other dropout masks and updates moving statistics once more. What is
wrapped here is a pure function of tensors, so that the second computation is the first one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def recomputed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of which only the inputs are kept for the backward pass, not what is in between.

    Values and gradients are bit for bit those of the function itself, which runs a second time
    when the gradient of its outputs is there; but for bfloat16 and float16 under XLA, which rounds
    intermediate values or not as it fuses them. Chen et al. 2016, "Training deep nets with
    sublinear memory cost", section 4. Memory is saved inside a ``tf.function``, compiled or not.

    Args:
        function: of tensors, which gives tensors, or a nested structure of them. Pure: weights,
            state and what random draws depend on are arguments; it reads no ``tf.Variable``. What
            it captures and does not take as an argument may be kept from the first time.

    Returns:
        A function of the same tensors. Integers, booleans and strings may be among them and among
        the outputs; they have no gradient. There are no second derivatives.
    """

    @functools.wraps(function)
    def call(*tensors: Any) -> Any:
        return _once(*map(tf.convert_to_tensor, tensors))

    @tf.custom_gradient
    def _once(*tensors: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor | None]]]:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            again = _held_back(tensors, upstream)
            sources = [tensor for tensor in again if _differentiable(tensor)]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                outputs = tf.nest.flatten(function(*again))
            pairs = [
                (output, incoming)
                for output, incoming in zip(outputs, upstream, strict=True)
                if _differentiable(output)
            ]
            targets, incoming = zip(*pairs, strict=True)
            found = iter(tape.gradient(list(targets), sources, list(incoming)))
            return [next(found) if _differentiable(tensor) else None for tensor in tensors]

        return function(*tensors), gradient

    return call


def _held_back(
    tensors: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor | None]
) -> list[tf.Tensor]:
    """The tensors as they are, but not before the incoming gradients are there.

    Without that, the executor would compute everything a second time at once, and the optimizers
    of Grappler and XLA would make one computation of the two. XLA heeds no control dependencies.
    So the values depend on the gradients: by a condition that is always true, which nobody but a
    reader of this comment knows, as it takes arithmetic with bounds to see it.
    """
    arrived = tf.constant(True)
    for incoming in upstream:
        if incoming is not None and incoming.dtype.is_floating:
            first = tf.reshape(incoming, [-1])[:1]
            bounded = tf.logical_or(first <= first.dtype.max, tf.math.is_inf(first))
            arrived &= tf.reduce_all(tf.logical_or(bounded, tf.math.is_nan(first)))
    return [
        # Strings have no zeros; where they are is no memory to be saved.
        tensor if tensor.dtype == tf.string else tf.where(arrived, tensor, tf.zeros_like(tensor))
        for tensor in tensors
    ]


def _differentiable(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex
