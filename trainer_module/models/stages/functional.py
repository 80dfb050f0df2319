"""Reads the graph of a functional Keras model: which layer is called on what."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from stagecraft.schemas import features
from stagecraft.trainer_module.models.layers.walk import intercepted


def obstacle(model: keras.Model) -> str:
    """Why a model is not a readable graph from one input to one output; empty: it is."""
    # A functional or sequential model runs its graph by Keras's own `call`; a model with another
    # `call` may not run the graph at all.
    of_keras = type(model).call.__module__.split(".")[0] == "keras"
    if not of_keras or not getattr(model, "inputs", None):
        return f"{type(model).__name__} is a subclassed model, which has no visible graph"
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return f"it has {len(model.inputs)} inputs and {len(model.outputs)} outputs"
    return ""


def input_of(model: keras.Model) -> Any:
    """A model's symbolic input; an image if the model does not know it."""
    known = getattr(model, "inputs", None)
    return known[0] if known else keras.KerasTensor((None, *features.IMAGE_SHAPE))


def inputs_of(model: keras.Model) -> Any:
    """A model's symbolic inputs, in the structure with which it is called."""
    return model.input if len(getattr(model, "inputs", None) or ()) > 1 else input_of(model)


def calls(model: keras.Model) -> list[Any]:
    """The nodes of a model's graph, each after its dependencies; the first is the input's."""
    # Private: Keras shows a model's layers, but not which tensors go from one to the next.
    order: dict[int, Any] = {}
    stack = [(model.outputs[0], False)]
    while stack:
        tensor, done = stack.pop()
        operation, node_index, _ = tensor._keras_history
        node = operation._inbound_nodes[node_index]
        if id(node) in order:
            continue
        if done:
            order[id(node)] = node
            continue
        stack.append((tensor, True))
        if tensor is not model.inputs[0]:
            stack += [(value, False) for value in reversed(node.input_tensors)]
    return list(order.values())


def dtypes(model: keras.Model) -> dict[str, str]:
    """Output dtypes of layers for which Keras may be wrong, by the layers' names.

    For a ``Lambda``, or a layer with its own ``compute_output_shape``, Keras assumes the compute
    dtype. This function traces a model that has such layers.
    """
    unknown = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Lambda)
        or type(layer).compute_output_shape.__module__.partition(".")[0] != "keras"
    ]
    if not unknown:
        return {}
    result: dict[str, str] = {}

    def watched(layer: Any, call: Any) -> Any:
        def recording(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            first = tf.nest.flatten(outputs)[0]
            result[layer.name] = tf.as_dtype(first.dtype).name
            return outputs

        return recording

    inputs = model.inputs[0]
    spec = tf.TensorSpec([2, *inputs.shape[1:]], inputs.dtype)
    with intercepted(unknown, watched):
        tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(spec)
    return result


def tensor_bytes(tensor: Any) -> int:
    """Bytes of one example in a symbolic tensor; unknown dimensions count as one."""
    sizes = (1 if size is None else size for size in tensor.shape[1:])
    return math.prod(sizes) * tf.as_dtype(tensor.dtype).size


def call_bytes(node: Any) -> int:
    """Bytes of a call's outputs for one example; for a model, of all its layers."""
    inner = node.operation
    if isinstance(inner, keras.Model) and not obstacle(inner):
        return activation_bytes(inner)
    return sum(map(tensor_bytes, node.outputs))


def activation_bytes(model: keras.Model) -> int:
    """Bytes of all layers' outputs for one example: about what a backward pass needs."""
    return sum(map(call_bytes, calls(model)[1:]))
