"""The graph inside a functional Keras model: which layer is called on what."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from stagecraft.schemas import features


def why_not(model: keras.Model) -> str:
    """Why a model's graph cannot be read as one way from an input to an output; empty: it can."""
    # A functional or sequential model runs its graph with Keras's own `call`; one that has another
    # need not run the graph at all.
    of_keras = type(model).call.__module__.split(".")[0] == "keras"
    if not of_keras or not getattr(model, "inputs", None):
        return f"{type(model).__name__} is a subclassed model, whose inside cannot be seen"
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return f"it has {len(model.inputs)} inputs and {len(model.outputs)} outputs"
    return ""


def input_of(model: keras.Model) -> Any:
    """A model's symbolic input; of one that does not tell, a picture."""
    known = getattr(model, "inputs", None)
    return known[0] if known else keras.KerasTensor((None, *features.IMAGE_SHAPE))


def calls(model: keras.Model) -> list[Any]:
    """The nodes of a model's graph, each after those it depends on; the input's is the first.

    Args:
        model: for which there is no :func:`why_not`.
    """
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
    """The dtypes that layers give where Keras may not know them, by the layers' names.

    Keras takes it that a ``Lambda``, or a layer with a ``compute_output_shape`` of its own, gives
    what it computes in. Where there is such a layer, the model is traced.

    Args:
        model: for which there is no :func:`why_not`.
    """
    unknown = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Lambda)
        or type(layer).compute_output_shape.__module__.partition(".")[0] != "keras"
    ]
    if not unknown:
        return {}
    found: dict[str, str] = {}

    def watched(layer: Any) -> Any:
        call = layer.call

        def noting(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            first = tf.nest.flatten(outputs)[0]
            found[layer.name] = tf.as_dtype(first.dtype).name
            return outputs

        return noting

    before = [(layer, vars(layer).get("call")) for layer in unknown]
    try:
        for layer in unknown:
            layer.call = watched(layer)
        inputs = model.inputs[0]
        spec = tf.TensorSpec([2, *inputs.shape[1:]], inputs.dtype)
        tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(spec)
    finally:
        for layer, call in before:
            if call is None:
                del layer.call
            else:
                layer.call = call
    return found


def tensor_bytes(tensor: Any) -> int:
    """Bytes of one example in a symbolic tensor; dimensions that are not known count as one."""
    elements = 1
    for size in tensor.shape[1:]:
        elements *= 1 if size is None else size
    return elements * tf.as_dtype(tensor.dtype).size


def call_bytes(node: Any) -> int:
    """Bytes of what a call gives for one example, and of what is inside where it is a model."""
    inner = node.operation
    if isinstance(inner, keras.Model) and not why_not(inner):
        return activation_bytes(inner)
    return sum(map(tensor_bytes, node.outputs))


def activation_bytes(model: keras.Model) -> int:
    """Bytes of what all layers give for one example: about what a backward pass needs of it.

    Args:
        model: for which there is no :func:`why_not`.
    """
    return sum(map(call_bytes, calls(model)[1:]))
