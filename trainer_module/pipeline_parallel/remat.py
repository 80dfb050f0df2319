"""Rematerialisation: recomputes activations in the backward pass instead of storing them.

This module does not use ``tf.recompute_grad``: around layers of Keras 3 it is silently wrong, since
the second computation draws other dropout masks and updates moving statistics again. Here the
wrapped function is pure, so the second computation equals the first one.

Rematerialisation of layers whose weights are on several devices.

``tf.custom_gradient`` copies all arguments to one device, and so the slices of all shards.
``recomputed_by_shards`` records the gradient without copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from stagecraft.trainer_module.models.model_graph import is_differentiable
from stagecraft.trainer_module.tensor_parallel import group as groups


def recomputed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that only its inputs are stored for the backward pass.

    The function runs a second time when the gradient of its outputs arrives. Values and gradients
    are bit for bit those of the function itself. With bfloat16 and float16, XLA is an exception:
    its fusion decides which intermediate values are rounded. Chen et al. 2016, "Training deep nets
    with sublinear memory cost", section 4. Memory is saved inside a ``tf.function``, compiled or
    not. Integers, booleans and strings have no gradient. There are no second derivatives.

    Args:
        function: maps nested structures of tensors to one. It is pure: weights, state
            and the inputs of random draws are arguments; it reads no ``tf.Variable``. TensorFlow
            may store tensors that it captures.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        def flat(*tensors: tf.Tensor) -> Any:
            return function(*tf.nest.pack_sequence_as(arguments, tensors))

        return _recomputed(flat)(*map(tf.convert_to_tensor, tf.nest.flatten(arguments)))

    return call


def _recomputed(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`recomputed`, of tensors alone."""

    @tf.custom_gradient
    def once(*tensors: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor | None]]]:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            arrived = arrival(upstream)
            return gradients(function, [after(arrived, each) for each in tensors], upstream)

        return function(*tensors), gradient

    return once


def arrival(upstream: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """A bool that is True, once the incoming gradients are known.

    The executor would otherwise recompute everything at once, and the optimizers of Grappler and
    XLA would merge both computations. XLA ignores control dependencies. So the bool depends on the
    gradients, by a condition that is always true, but only by an argument about bounds that no
    optimizer makes.
    """
    arrived = tf.constant(True)
    for incoming in upstream:
        if incoming is not None and incoming.dtype.is_floating:
            first = tf.reshape(incoming, [-1])[:1]
            bounded = tf.logical_or(first <= first.dtype.max, tf.math.is_inf(first))
            arrived &= tf.reduce_all(tf.logical_or(bounded, tf.math.is_nan(first)))
    return arrived


def after(arrived: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """The same tensor, available only after :func:`arrival`."""
    # Strings have no zeros, and little memory to save.
    return tensor if tensor.dtype == tf.string else tf.where(arrived, tensor, tf.zeros_like(tensor))


def gradients(
    function: Callable[..., Any], again: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor | None]
) -> list[tf.Tensor | None]:
    """Computes ``function`` again, and the gradients of the tensors from those of its outputs."""
    sources = [tensor for tensor in again if is_differentiable(tensor)]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        outputs = tf.nest.flatten(function(*again))
    pairs = [
        (output, incoming)
        for output, incoming in zip(outputs, upstream, strict=True)
        if is_differentiable(output) and incoming is not None
    ]
    targets, incoming = zip(*pairs, strict=True)
    found = iter(tape.gradient(list(targets), sources, list(incoming)))
    return [next(found) if is_differentiable(tensor) else None for tensor in again]


def recomputed_by_shards(function: Callable[..., Any], shards: Sequence[int]) -> Callable[..., Any]:
    """Like :func:`~stagecraft.trainer_module.pipeline_parallel.remat.recomputed`, inside a pass.

    Args:
        function: takes nested structures of tensors, and then a tensor for each of ``shards``.
        shards: the shard that holds each of the last tensors.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        group = groups.current()
        assert group is not None
        tensors = list(map(tf.convert_to_tensor, tf.nest.flatten(arguments)))
        owners = [0] * (len(tensors) - len(shards)) + list(shards)

        def flat(*given: tf.Tensor) -> Any:
            # That of the pass back, when it computes again.
            with groups.active((groups.current() or group).fresh()):
                return function(*tf.nest.pack_sequence_as(arguments, given))

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            arrived = arrival(upstream)
            again = []
            for tensor, shard in zip(tensors, owners, strict=True):
                with (groups.current() or group).on(shard):
                    again.append(after(arrived, tensor))
            return gradients(flat, again, upstream)

        with record.stop_recording():
            outputs = flat(*tensors)
            # The tape takes no tensor twice; an input may be an output.
            outputs = tf.nest.map_structure(tf.identity, outputs)
        record.record_operation("Recomputed", tf.nest.flatten(outputs), tensors, gradient)
        return outputs

    return call
