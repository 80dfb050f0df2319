"""Reads the graph of a functional Keras model: which layer is called on what."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from stagecraft.trainer_module.models.layers.walk import intercepted
from stagecraft.trainer_module.models.stages import inputs


class Carry(keras.layers.Identity):
    """Passes a tensor through a stage that does not use it.

    Keras cannot clone a graph whose output is one of its own inputs.
    """

    def __init__(self) -> None:
        super().__init__(autocast=False)


def obstacle(model: keras.Model) -> str:
    """Why a model is not a readable graph; empty: it is."""
    # A functional or sequential model runs its graph by Keras's own `call`; a model with another
    # `call` may not run the graph at all.
    of_keras = type(model).call.__module__.split(".")[0] == "keras"
    if not of_keras or not getattr(model, "inputs", None):
        return f"{type(model).__name__} is a subclassed model, which has no visible graph"
    return ""


def calls(model: keras.Model) -> list[Any]:
    """The nodes of a model's graph, each after its dependencies; the inputs' are the first."""
    # Private: Keras shows a model's layers, but not which tensors go from one to the next.
    order: dict[int, Any] = {}
    given = {id(tensor) for tensor in model.inputs}
    stack = [(tensor, False) for tensor in reversed([*model.inputs, *model.outputs])]
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
        if id(tensor) not in given:
            stack += [(value, False) for value in reversed(node.input_tensors)]
    return list(order.values())


def computed(model: keras.Model) -> list[Any]:
    """The nodes that compute something: :func:`calls` without inputs and carried tensors."""
    nodes = calls(model)[len(model.inputs) :]
    return [node for node in nodes if not isinstance(node.operation, Carry)]


def outputs(model: keras.Model) -> dict[str, list[tuple[str, int | None]]]:
    """Dtypes and ranks of the outputs of layers for which Keras may be wrong, by their names.

    For a ``Lambda``, or a layer with its own ``compute_output_shape``, Keras assumes the compute
    dtype and believes the shape. This function traces a model that has such layers.
    """
    unknown = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Lambda)
        or type(layer).compute_output_shape.__module__.partition(".")[0] != "keras"
    ]
    if not unknown:
        return {}
    layers = [*map(id, model.layers)]
    if _outputs.get(model, (None,))[0] == layers:
        return _outputs[model][1]
    result: dict[str, list[tuple[str, int | None]]] = {}

    def watched(layer: Any, call: Any) -> Any:
        def recording(*args: Any, **kwargs: Any) -> Any:
            made = call(*args, **kwargs)
            result[layer.name] = [
                (tf.as_dtype(x.dtype).name, x.shape.rank) for x in tf.nest.flatten(made)
            ]
            return made

        return recording

    with intercepted(unknown, watched), _apart():
        tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(
            inputs.specs(inputs.of(model), 2)
        )
    _outputs[model] = layers, result
    return result


_outputs: weakref.WeakKeyDictionary[keras.Model, tuple[list[int], Any]]
_outputs = weakref.WeakKeyDictionary()
"""Model -> ids of its layers, and what :func:`outputs` has found: planning asks it many times."""


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """In the block, calls of layers leave no losses and assignments where somebody looks at them.

    A model inside of another one may be in the middle of a call.
    """
    before = global_state.get_global_attribute(_CALL)
    global_state.set_global_attribute(_CALL, None)
    try:
        with keras.StatelessScope(collect_losses=True):
            yield
    finally:
        global_state.set_global_attribute(_CALL, before)


_CALL = "current_call_ctx"
"""Of ``keras/src/layers/layer.py``."""


def tensor_bytes(tensors: Any) -> int:
    """Bytes of one example in symbolic tensors; unknown dimensions count as one."""
    return sum(map(_bytes, tf.nest.flatten(tensors)))


def _bytes(tensor: Any) -> int:
    sizes = (1 if size is None else size for size in tensor.shape[1:])
    return math.prod(sizes) * tf.as_dtype(tensor.dtype).size


def call_bytes(node: Any) -> int:
    """Bytes of a call's outputs for one example; for a model, of all its layers."""
    inner = node.operation
    if isinstance(inner, keras.Model) and not obstacle(inner):
        return activation_bytes(inner)
    return 0 if isinstance(inner, Carry) else tensor_bytes(list(node.outputs))


def activation_bytes(model: keras.Model, given: Any = None) -> int:
    """Bytes of all layers' outputs for one example.

    Args:
        given: symbolic inputs, if the model's own leave sizes open.
    """
    if given is None or not inputs.are_open(model.inputs):
        return sum(map(call_bytes, computed(model)))
    total = 0

    def measured(operation: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal total
            made = operation.compute_output_spec(*args, **kwargs)
            if isinstance(operation, keras.Model) and not obstacle(operation):
                total += activation_bytes(operation, args[0])
            elif not isinstance(operation, Carry):
                total += tensor_bytes(made)
            return made

        return call

    symbols = [keras.KerasTensor(x.shape, x.dtype) for x in tf.nest.flatten(given)]
    if isinstance(model, keras.Sequential):
        model = model._functional
    model._run_through_graph(symbols, measured)  # private; Keras computes shapes so
    return total


def have_gradients(
    model: keras.Model, of_inputs: Sequence[bool], frozen: Collection[str] = ()
) -> list[bool]:
    """Which outputs of a functional model depend, by floats, on trained weights.

    Args:
        of_inputs: which of the inputs do, by the models before.
        frozen: paths of weights that are not trained any more.
    """

    def is_float(tensor: Any) -> bool:
        return tf.as_dtype(tensor.dtype).is_floating

    known = {id(tensor) for tensor, has in zip(model.inputs, of_inputs, strict=True) if has}
    for node in calls(model)[len(model.inputs) :]:
        weights = getattr(node.operation, "trainable_variables", ())
        trained = any(weight.path not in frozen for weight in weights)
        if trained or any(id(tensor) in known for tensor in node.input_tensors):
            known |= {id(tensor) for tensor in node.outputs if is_float(tensor)}
    return [id(tensor) in known for tensor in model.outputs]
