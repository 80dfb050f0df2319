"""The graph of a Keras model: which layer is called on what, and what the model is called with."""

from __future__ import annotations

import inspect
import logging
import math
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.batch import Nest

_log = logging.getLogger(__name__)


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
    """The nodes of a model's graph, each after its dependencies.

    Those of the inputs are the first, those that carry tensors to other stages the last.
    """
    # Private: Keras shows a model's layers, but not which tensors go from one to the next.
    order: dict[int, Any] = {}
    given = {id(tensor) for tensor in model.inputs}
    outputs = sorted(model.outputs, key=lambda each: isinstance(each._keras_history[0], Carry))
    stack = [(tensor, False) for tensor in reversed([*model.inputs, *outputs])]
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


def is_differentiable(tensor: Any) -> bool:
    """Whether a tensor, of Keras or TensorFlow, can have a gradient."""
    dtype = tf.as_dtype(tensor.dtype)
    return bool(dtype.is_floating or dtype.is_complex)


def input_count(model: keras.Model) -> int:
    """The number of the first of :func:`calls` that are inputs.

    Inputs that are outputs of one call of another model have one node.
    """
    histories = [tensor._keras_history for tensor in model.inputs]
    return len({(id(each.operation), each.node_index) for each in histories})


def computed(model: keras.Model) -> list[Any]:
    """The nodes that compute something: :func:`calls` without inputs and carried tensors."""
    nodes = calls(model)[input_count(model) :]
    return [node for node in nodes if not isinstance(node.operation, Carry)]


def opened(model: keras.Model) -> keras.Model:
    """The model with the layers of functional models inside in the place of these models.

    So are layers of KerasHub whose call only calls their layers, such as ``ViTEncoder``. The layers
    are the caller's own. A model stays one layer if its call does more than to call its layers, or
    if the names of its layers are not unique.
    """
    opens = dict(_openable(model, _by_name(model)))
    if not opens:
        return model
    about = [(id(layer), layer.trainable) for layer in model._flatten_layers()]
    if _opened.get(model, (None,))[0] == about:
        return _opened[model][1]

    def opening(operation: Any) -> Any:
        if id(operation) not in opens:
            return operation
        return lambda given, **_: _graph(opens[id(operation)])._run_through_graph(given, opening)

    own = of(model)
    # Private; Keras calls the layers of a model so. Masks are computed anew: inside of a model, the
    # tensors do not show the masks that they get from outside.
    found = _graph(model)._run_through_graph(own, opening)
    whole = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    found = tf.nest.pack_sequence_as(whole, tf.nest.flatten(found))
    result = keras.Model(own, found, name=model.name)
    _opened[model] = about, result
    return result


_opened: weakref.WeakKeyDictionary[keras.Model, tuple[Any, keras.Model]]
_opened = weakref.WeakKeyDictionary()
"""Model -> its layers, and what :func:`opened` has made of it."""


def _graph(model: keras.Model) -> Any:
    return model._functional if isinstance(model, keras.Sequential) else model


def _openable(model: keras.Model, named: dict[str, Any]) -> Iterator[tuple[int, keras.Model]]:
    """Ids of operations that :func:`opened` may open, and the model that each is.

    Args:
        named: operations by name; those inside are added.
    """
    called: dict[Any, list[Any]] = {}
    for node in computed(model):
        called.setdefault(node.operation, []).append(node)
    for operation, nodes in called.items():
        inner = operation if isinstance(operation, keras.Model) else _chain(operation)
        if inner is None or not all(_is_plain(node, inner) for node in nodes):
            continue
        own = _by_name(inner)
        if all(named.get(name, each) is each for name, each in own.items()):
            named.update(own)
            yield id(operation), inner
            yield from _openable(inner, named)


def _chain(layer: Any) -> keras.Model | None:
    """The model of a layer that does nothing but to call its layers; None: it is not known."""
    if type(layer).__module__.partition(".")[0] != "keras_hub" or not isinstance(
        layer, keras.Layer
    ):
        return None
    if layer not in _chains:
        _chains[layer] = None
        try:
            _chains[layer] = _traced_chain(layer)
        except Exception as error:  # a layer that computes with sizes which a graph does not know
            _log.debug("%s has no graph: %s", layer.name, error)
    return _chains[layer]


def _traced_chain(layer: Any) -> keras.Model | None:
    arguments = inspect.signature(type(layer).call).parameters
    shapes = layer.get_build_config() or {}
    if len(arguments) != 2 or not isinstance(shapes.get("input_shape"), (tuple, list)):
        return None
    shape, dtype = (None, *shapes["input_shape"][1:]), layer.compute_dtype
    # With a name: Keras would count this input among those of the user.
    given = keras.Input(batch_shape=shape, dtype=dtype, name=f"{layer.name}_input")
    model = keras.Model(given, layer.call(given), name=layer.name)
    nodes, known = computed(model), set(map(id, model.variables))
    layers = len(nodes) > 1 and all(isinstance(node.operation, keras.Layer) for node in nodes)
    return model if layers and all(id(each) in known for each in layer.variables) else None


_chains: weakref.WeakKeyDictionary[Any, keras.Model | None]
_chains = weakref.WeakKeyDictionary()


def _by_name(model: keras.Model) -> dict[str, Any]:
    return {node.operation.name: node.operation for node in computed(model)}


def last_layers(model: keras.Model, names: Iterable[str]) -> list[str]:
    """Names of layers; in the place of a model that :func:`opened` opens, its last layer."""
    found: dict[str, Any] = {}
    stack = [] if obstacle(model) else [model]
    opens = dict(each for model in stack for each in _openable(model, _by_name(model)))
    while stack:
        own = _by_name(stack.pop())
        found = own | found
        stack += [opens[id(inner)] for inner in own.values() if id(inner) in opens]

    def last(name: str) -> str:
        inner = opens.get(id(found.get(name)))
        return name if inner is None else last(computed(inner)[-1].operation.name)

    return [*map(last, names)]


def _is_plain(node: Any, model: keras.Model) -> bool:
    """Whether a call of a model, or of a layer, only calls the layers of its graph."""
    layer, given = node.operation, node.arguments
    if obstacle(model) or "call" in vars(layer) or layer.activity_regularizer is not None:
        return False
    if not layer.trainable and any(
        each.trainable for each in model._flatten_layers(include_self=False)
    ):
        return False
    about = tf.nest.flatten(given.kwargs)  # a mask is a structure, as the inputs are
    if len(given.args) != 1 or any(value is not None for value in about):
        return False
    own = of(model)
    pairs = [*zip(tf.nest.flatten(own), tf.nest.flatten(given.args[0]), strict=False)]
    return _structure(own) == _structure(given.args[0]) and all(
        (one.dtype, len(one.shape)) == (other.dtype, len(other.shape)) for one, other in pairs
    )


def _structure(nest: Any) -> str:
    """Keras takes a list for a tuple, and a tensor for a list of one."""
    if isinstance(nest, dict):
        return repr([(name, _structure(nest[name])) for name in sorted(nest)])
    if isinstance(nest, (list, tuple)) and len(nest) != 1:
        return repr([_structure(each) for each in nest])
    return ""


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
    if given is None or not are_open(model.inputs):
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
    for node in calls(model)[input_count(model) :]:
        weights = getattr(node.operation, "trainable_variables", ())
        trained = any(weight.path not in frozen for weight in weights)
        if trained or any(id(tensor) in known for tensor in node.input_tensors):
            known |= {id(tensor) for tensor in node.outputs if is_float(tensor)}
    return [id(tensor) in known for tensor in model.outputs]


_noted: weakref.WeakKeyDictionary[keras.Model, Nest] = weakref.WeakKeyDictionary()
"""Model -> its inputs; a model with a visible graph knows them by itself, but not all sizes."""


def note(model: keras.Model, specs: Nest) -> None:
    """Remembers what a model is called with: a ``Spec`` of the task, or a structure of them."""
    _noted[model] = tf.nest.map_structure(
        lambda spec: keras.KerasTensor((None, *spec.shape), spec.dtype), specs
    )


def of(model: keras.Model) -> Nest:
    """A model's symbolic inputs, as it wants them: a tensor ``[batch, …]``, or a structure.

    Raises:
        LookupError: a subclassed model that was never called, nor noted.
    """
    if getattr(model, "inputs", None):
        return model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    if model in _noted:
        return _noted[model]
    config = model.get_build_config() or {}
    if "input_shape" not in config:
        raise LookupError(f"the inputs of {model.name} are not known; call the model once")
    return _of_shapes(config["input_shape"])


def are_open(inputs: Nest) -> bool:
    """Whether a size is not known, but for the number of examples."""
    return any(None in tensor.shape[1:] for tensor in tf.nest.flatten(inputs))


def sized(model: keras.Model) -> Nest:
    """The graph of :func:`of` for costs: sizes that the model leaves open are those noted."""
    own, noted = of(model), tf.nest.flatten(_noted.get(model, ()))
    symbols = tf.nest.flatten(own)
    if not are_open(own) or len(symbols) != len(noted):
        return own
    pairs = list(zip(symbols, noted, strict=True))
    if not all(_fits(symbol.shape, known.shape) for symbol, known in pairs):
        return own
    filled = [keras.KerasTensor(known.shape, symbol.dtype) for symbol, known in pairs]
    return tf.nest.pack_sequence_as(own, filled)


def note_sizes(model: keras.Model, input_shape: Any) -> None:
    """Remembers the sizes that a built model leaves open.

    Args:
        input_shape: ``(1024,)`` or 1024 for all inputs that it fits; or shapes by name, or in order
            (of the names, for a dictionary). None: nothing is known.

    Raises:
        SettingError: a size is missing, or does not fit.
    """
    own = of(model)
    symbols, problem = tf.nest.flatten(own), "does not fit the inputs of the model"
    named = isinstance(own, dict) and len(own) == len(symbols)
    names = sorted(own) if named else [each.name for each in symbols]
    use = {
        name: tuple(size or 1024 for size in symbol.shape[1:])
        for name, symbol in zip(names, symbols, strict=True)
        if None in symbol.shape[1:]
    }
    shown = f"input_shape={use if len(symbols) > 1 else next(iter(use.values()), None)}"
    shape = (input_shape,) if isinstance(input_shape, int) else input_shape
    if isinstance(shape, dict) and not {*shape} <= {*names}:
        raise SettingError("input_shape", input_shape, problem, shown)
    if isinstance(shape, dict):
        shapes = [shape.get(name) for name in names]
    elif shape is None or all(each is None or isinstance(each, int) for each in shape):
        shapes = [shape] * len(symbols)
    else:
        shapes = [*shape, *[None] * len(symbols)][: len(symbols)]
    noted = []
    for symbol, wanted in zip(symbols, shapes, strict=True):
        whole = symbol.shape if wanted is None else (None, *wanted)
        noted.append(whole if _fits(symbol.shape, whole) else symbol.shape)
    if any(None in each[1:] for each in noted):
        problem = problem if shape is not None else "is needed: the model leaves sizes open"
        raise SettingError("input_shape", input_shape, problem, shown)
    pairs = zip(noted, symbols, strict=True)
    _noted[model] = tf.nest.pack_sequence_as(
        own, [keras.KerasTensor(each, symbol.dtype) for each, symbol in pairs]
    )


def _fits(shape: Sequence[int | None], other: Sequence[int | None]) -> bool:
    sizes = zip(shape[1:], other[1:], strict=False)
    return len(shape) == len(other) and all(a in (None, b) for a, b in sizes)


def _of_shapes(shapes: Any) -> Nest:
    """Symbolic float32 inputs from the shapes with which Keras built a model."""
    if isinstance(shapes, dict):
        return {name: _of_shapes(shape) for name, shape in shapes.items()}
    if any(isinstance(size, (tuple, list)) for size in shapes):
        return [_of_shapes(shape) for shape in shapes]
    return keras.KerasTensor((None, *shapes[1:]), "float32")


def specs(inputs: Nest, examples: int, unknown: int = 1) -> Nest:
    """``tf.TensorSpec`` of a batch of symbolic inputs.

    Args:
        inputs: any objects with a shape ``[batch, …]`` and a dtype.
        unknown: size of the other dimensions that are not known.
    """

    def spec(tensor: Any) -> tf.TensorSpec:
        sizes = (unknown if size is None else size for size in tensor.shape[1:])
        return tf.TensorSpec([examples, *sizes], tensor.dtype)

    return tf.nest.map_structure(spec, inputs)


def zeros(spec: Any, examples: int) -> np.ndarray:
    """Zeros, or empty strings, for examples of a task's ``Spec``; unknown sizes are 1."""
    shape = (examples, *(size or 1 for size in spec.shape))
    return np.zeros(shape, "U1" if spec.dtype == "string" else spec.dtype)


def noise(specs: Nest, generator: np.random.Generator, scale: float = 1.0) -> Nest:
    """Random tensors: floats of a normal distribution times ``scale``; integers 0 and 1."""

    def draw(spec: tf.TensorSpec) -> tf.Tensor:
        shape = spec.shape.as_list()
        if spec.dtype == tf.string:
            return tf.as_string(tf.constant(generator.integers(0, 2, shape)))
        if not spec.dtype.is_floating:
            return tf.cast(tf.constant(generator.integers(0, 2, shape)), spec.dtype)
        return tf.cast(tf.constant(scale * generator.standard_normal(shape)), spec.dtype)

    return tf.nest.map_structure(draw, specs)
