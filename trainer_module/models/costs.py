"""Computes the costs of the stages of a model: parameters, operations, bytes.

The user's own layers count as well as Keras's, by the operations of their graph.

Convolutions and matrix products count two floating-point operations for each multiplication with
addition. Any other operation counts one for each element that it reads or writes, whichever are
more, and none if it only moves values. The body of a loop counts once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models import blank, model_graph, structural_keys
from stagecraft.trainer_module.models.layers.random_state import floatx

_log = logging.getLogger(__name__)


class Times(NamedTuple):
    """Times of one example through a part of a model: seconds, or floating-point operations."""

    forward: float
    backward: float


@dataclasses.dataclass(frozen=True)
class Tied:
    """A weight that several stages use."""

    path: str
    parameters: int
    trained: bool


class Whole(NamedTuple):
    """A layer whose own weights ``parallel.shards`` does not divide."""

    path: str
    kind: str
    """Name of its class."""
    parameters: int
    reason: str
    """A phrase that follows the path."""


@dataclasses.dataclass(frozen=True)
class StageCost:
    """Costs of one stage, for one example, forward."""

    first: str
    """Name of the first layer."""
    last: str
    """Name of the last layer."""
    layers: int
    parameters: int
    trainable: int
    """Number of parameters that training changes."""
    frozen: int
    """Number of parameters of layers with ``trainable = False``."""
    flops: int
    input_bytes: int
    """Bytes from the stage before."""
    activation_bytes: int
    """Bytes of the values that stay until the backward pass: inputs, and what layers compute."""
    output_bytes: int
    """Bytes to the next stage."""
    output_tensors: int
    """Number of tensors in ``output_bytes``."""
    tied: tuple[Tied, ...]
    """The weights that other stages use as well; they are among ``parameters``."""
    kind: str
    """Equal for stages with the same operations on the same shapes, forward and backward."""
    shared_bytes: int = 0
    """Bytes of inputs that stay, and are outputs that stay of the stage before."""
    split_parameters: int = 0
    """The part of ``parameters`` that ``parallel.shards`` divides; of it,"""
    split_trainable: int = 0
    """those that training changes."""
    split_flops: int = 0
    """The part of ``flops`` that shards divide."""
    split_activation_bytes: int = 0
    """The part of ``activation_bytes`` that shards divide."""
    whole: tuple[Whole, ...] = ()
    """The layers of the other parameters, if shards divide the model."""
    most_shards: int | None = None
    """The most shards that can divide all of ``split_parameters``; None: any number."""
    shard_bytes: int = 0
    """Bytes that the first shard sends to each other shard, plus those that it receives from it, in
    the forward pass; as many in the backward pass."""
    operations: tuple[Operation, ...] = ()
    """The operations that take time on an accelerator; empty: not known."""


def stage_costs(
    stages: Sequence[keras.Model], inputs: Nest, *, keeps: bool = True
) -> list[StageCost]:
    """The costs of consecutive models.

    Args:
        stages: built; functional or subclassed.
        inputs: of the first model: any objects with a shape ``[batch, …]`` and a dtype.
        keeps: whether the bytes matter that stay until the backward pass; they take time.
    """
    costs = []
    uses = Counter(id(variable) for stage in stages for variable in stage.variables)
    known: dict[Any, _Traced] = {}
    before = [False] * len(tf.nest.flatten(inputs))
    for stage in stages:
        if model_graph.are_open(model_graph.of(stage)):
            model_graph.note(stage, tf.nest.map_structure(_of_example, inputs))
        key = structural_keys.model_key(stage)
        if key is None:
            traced = _traced(stage, inputs, keeps)
        else:
            key = key, structural_keys.specs_key(inputs)
            traced = known[key] = known.get(key) or _traced(stage, inputs, keeps)
        names = _layer_names(stage)
        sizes = [model_graph.tensor_bytes(each) for each in tf.nest.flatten(inputs)]
        triples = [*zip(sizes, traced.kept.inputs, before, strict=True)]
        before = traced.kept.outputs
        own = sum(size for size, is_kept, was_kept in triples if is_kept and not was_kept)
        costs.append(
            StageCost(
                first=names[0],
                last=names[-1],
                layers=len(names),
                parameters=stage.count_params(),
                trainable=_count(stage.trainable_variables),
                frozen=_frozen(stage),
                input_bytes=sum(sizes),
                activation_bytes=traced.kept.inside + own,
                shared_bytes=sum(size for size, is_kept, _ in triples if is_kept) - own,
                output_bytes=model_graph.tensor_bytes(traced.outputs),
                output_tensors=len(tf.nest.flatten(traced.outputs)),
                tied=tuple(
                    Tied(variable.path, _count([variable]), variable.trainable)
                    for variable in stage.variables
                    if uses[id(variable)] > 1
                ),
                **traced.costs,
            )
        )
        inputs = traced.outputs
    return costs


def _of_example(tensor: Any) -> keras.KerasTensor:
    return keras.KerasTensor(tensor.shape[1:], tf.as_dtype(tensor.dtype).name)


class _Traced(NamedTuple):
    """Costs in the graph of a stage, for all stages that compute the same."""

    outputs: Nest
    kept: Kept
    costs: dict[str, Any]
    """Fields of a :class:`StageCost`."""


def _traced(stage: keras.Model, inputs: Nest, keeps: bool) -> _Traced:
    concrete = _trace(stage, inputs, training=False)
    graph = concrete.graph
    weights = graph.inputs[len(tf.nest.flatten(inputs)) :]
    return _Traced(
        concrete.structured_outputs,
        _kept(stage, inputs, graph) if keeps else _outputs(stage, inputs, graph),
        {
            "flops": flops(graph.get_operations()),
            "kind": _kind(graph, stage.trainable_variables),
            "operations": tuple(operations(graph, weights)),
        },
    )


def _trace(model: keras.Model, inputs: Nest, *, training: bool) -> Any:
    """The concrete function of one example; its last inputs are weights."""

    def call(values: Nest) -> Nest:
        return model(values, training=training)

    in_float64 = any(layer.compute_dtype == "float64" for layer in model.layers or [model])
    with floatx("float64" if in_float64 else keras.config.floatx()):
        if training or blank.are_blank(model.variables):
            return blank.trace(model.variables, call, model_graph.specs(inputs, 1))
        function = tf.function(call, autograph=False)
        return function.get_concrete_function(model_graph.specs(inputs, 1))


def _layer_names(model: keras.Model) -> list[str]:
    """Names in the order of computation if that is readable, otherwise of construction."""
    if model_graph.obstacle(model):
        return [layer.name for layer in model.layers] or [model.name]
    called = [node.operation for node in model_graph.computed(model)]
    inputs = keras.layers.InputLayer
    return list(dict.fromkeys(each.name for each in called if not isinstance(each, inputs)))


def _count(variables: Sequence[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def _frozen(model: keras.Model) -> int:
    """Parameters of layers with ``trainable = False``, without other layers' statistics."""
    # Private, but the only list of the layers inside of layers.
    layers = [layer for layer in model._flatten_layers() if not layer.trainable]
    variables = {id(each): each for layer in layers for each in layer.variables}
    return _count(list(variables.values()))


def _kept(model: keras.Model, inputs: Nest, graph: Any) -> Kept:
    """Bytes that the gradient of a call in training takes.

    Where the gradient is not known, or keeps lists, as loops do: all layers' outputs.
    """
    count = len(tf.nest.flatten(inputs))
    try:
        concrete = _trace(model, inputs, training=True)
        # Not public: the functions that TensorFlow makes for a tape.
        _, backward = concrete._delayed_rewrite_functions.forward_backward()
        taken = [each for each in backward.captured_inputs if tf.is_symbolic_tensor(each)]
        if not any(each.dtype in (tf.variant, tf.resource) for each in taken):
            outputs = tf.nest.flatten(concrete.structured_outputs)
            return kept(concrete.graph, taken, count, outputs)
    except Exception as error:  # of an operation without a gradient, or whatever a layer raises
        _log.debug("%s: what its gradient takes is not known: %s", model.name, error)
    return _outputs(model, inputs, graph)


def _outputs(model: keras.Model, inputs: Nest, graph: Any) -> Kept:
    """All layers' outputs; all that the graph computes if the layers are not readable."""
    unused = [False] * len(tf.nest.flatten(inputs))
    if not model_graph.obstacle(model):
        with contextlib.suppress(Exception):  # of a layer that cannot compute shapes
            size = model_graph.activation_bytes(model, inputs)
            return Kept(size, unused, [True] * len(graph.outputs))
    size = sum(
        elements(output.shape) * output.dtype.size
        for operation in graph.get_operations()
        if operation.type not in MOVES
        for output in operation.outputs
    )
    return Kept(size, unused, [True] * len(graph.outputs))


def _kind(graph: Any, trained: Sequence[Any]) -> str:
    """Digest of operations, shapes, attributes and trained weights, without names."""
    lines = [["trained", *(str(tuple(variable.shape)) for variable in trained)]]
    for operation in graph.get_operations():
        attributes = (
            f"{name}={value}"
            for name, value in operation.node_def.attr.items()
            if not (name.startswith("_") or name in _NAMING or value.HasField("func"))
        )
        shapes = (str(value.shape) for value in (*operation.inputs, *operation.outputs))
        lines.append([operation.type, *shapes, *sorted(attributes)])
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


_NAMING = ("shared_name", "container", "value")
"""Attributes that are left out: names, and values of constants."""


# fmt: off
MOVES = frozenset((
    "BatchToSpaceND", "BroadcastTo", "Cast", "ConcatV2", "Const", "DepthToSpace", "ExpandDims",
    "Fill", "GatherV2", "Identity", "IdentityN", "MirrorPad", "NoOp", "OnesLike", "Pack",
    "Pad", "PadV2", "Placeholder", "Range", "Rank", "ReadVariableOp", "Reshape",
    "ResourceGather", "Shape", "ShapeN", "Size", "Slice", "SpaceToBatchND", "SpaceToDepth",
    "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose",
    "Unpack", "ZerosLike",
))
# fmt: on
"""Operations that compute nothing."""

# fmt: off
COPIES = frozenset((
    "BatchToSpaceND", "BroadcastTo", "Cast", "ConcatV2", "DepthToSpace", "GatherV2", "MirrorPad",
    "Pack", "Pad", "PadV2", "ResourceGather", "Slice", "SpaceToBatchND", "SpaceToDepth", "Split",
    "SplitV", "StridedSlice", "Tile", "Transpose", "Unpack",
))
# fmt: on
"""Of ``MOVES``, those that read and write all values of their outputs."""


_VIEWS = frozenset(("ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient"))
"""Operations whose output is the memory of their first input."""


class Kept(NamedTuple):
    """Bytes that the gradient of a graph takes, of one example."""

    inside: int
    """Bytes that the graph computes."""
    inputs: list[bool]
    """A flag for each input: whether the gradient takes it."""
    outputs: list[bool]
    """A flag for each output: whether the gradient takes it, whose bytes are then ``inside``."""


def kept(graph: Any, taken: Iterable[Any], inputs: int, outputs: Iterable[Any]) -> Kept:
    """Sizes of what a gradient takes; views of one value count once.

    Args:
        taken: by the gradient. What depends neither on the inputs nor on random numbers, such as
            weights, counts not.
        inputs: number of the graph's first inputs that are data.
    """
    data = graph.inputs[:inputs]
    of_data = {each.ref() for each in data}
    for operation in graph.get_operations():  # each after those that it depends on
        is_drawn = "Random" in operation.type
        if is_drawn or any(each.ref() in of_data for each in operation.inputs):
            of_data |= {each.ref() for each in operation.outputs}
    values = {each.ref(): each for each in map(_whole, taken) if each.ref() in of_data}
    is_input = [values.pop(each.ref(), None) is not None for each in data]
    size = sum(elements(each.shape) * each.dtype.size for each in values.values())
    return Kept(size, is_input, [_whole(each).ref() in values for each in outputs])


def _whole(value: Any) -> Any:
    """The value that a value is a view of."""
    while value.op.type in _VIEWS:
        value = value.op.inputs[0]
    return value


def flops(listed: Iterable[Any]) -> int:
    """Floating-point operations of some operations, including the functions that they call."""
    return sum(_flops(operation) for operation in _called(listed))


def operations(graph: Any, weights: Collection[Any] = ()) -> Iterator[Operation]:
    """The operations that take time on an accelerator, for a batch of one example.

    Operations on whole numbers compute shapes, in general, and are left out.

    Args:
        weights: inputs of the graph that are weights.
    """
    of_weights = {(id(graph), each.op.name) for each in weights}
    for operation in _called(graph.get_operations()):
        names = [(id(each.op.graph), each.op.name) for each in operation.inputs]
        if operation.type in ("ReadVariableOp", "Const") or (
            names and of_weights.issuperset(names)
        ):
            of_weights.add((id(operation.graph), operation.name))
        outputs = [each for each in operation.outputs if each.dtype.is_floating]
        copies = operation.type in COPIES
        if not outputs or (operation.type in MOVES and not copies):
            continue
        written = _bytes(outputs)
        if (id(operation.graph), operation.name) in of_weights:
            yield Operation(0.0, 0.0, 2 * written)
        elif copies:
            yield Operation(0.0, 2 * written)
        else:
            pairs = [*zip(operation.inputs, names, strict=True)]
            given = [each for each, name in pairs if name not in of_weights]
            weights = [each for each, name in pairs if name in of_weights]
            yield Operation(
                _flops(operation),
                _bytes(given) + written,
                _bytes(weights),
                winograd=_is_small_convolution(operation),
            )


def _called(listed: Iterable[Any]) -> Iterator[Any]:
    """Some operations, and those of the functions that they call."""
    for operation in listed:
        names = [
            value.func.name for value in operation.node_def.attr.values() if value.HasField("func")
        ]
        for name in names:  # a call, a branch, a loop; Keras makes grouped convolutions one
            # Private, but no public way leads from a call to the called graph.
            yield from _called(operation.graph._get_function(name).graph.get_operations())
        if not names:
            yield operation


def _bytes(tensors: Sequence[Any]) -> int:
    """Bytes of the tensors of floating-point numbers among these."""
    floats = [each for each in tensors if each.dtype.is_floating]
    return sum(elements(each.shape) * each.dtype.size for each in floats)


def _is_small_convolution(operation: Any) -> bool:
    """Whether it is a convolution with a 3 x 3 filter, without stride or dilation."""
    if operation.type != "Conv2D":
        return False
    steps = [*operation.get_attr("strides"), *operation.get_attr("dilations")]
    return list(operation.inputs[1].shape[:2]) == [3, 3] and set(steps) == {1}


def _flops(operation: Any) -> int:
    """Floating-point operations of an operation that calls no other graph."""
    if operation.type in MOVES or not operation.outputs:
        return 0
    written = elements(operation.outputs[0].shape)
    shapes = [value.shape for value in operation.inputs]
    if operation.type == "MatMul":
        return 2 * written * size_of(shapes[0][0 if operation.get_attr("transpose_a") else 1])
    if operation.type in ("BatchMatMulV2", "BatchMatMulV3"):
        return 2 * written * size_of(shapes[0][-2 if operation.get_attr("adj_x") else -1])
    if operation.type == "Einsum":
        return 2 * written * _contracted(operation.get_attr("equation").decode(), shapes)
    if operation.type in ("Conv2D", "Conv3D"):
        return 2 * written * elements(shapes[1][:-1])
    if operation.type == "DepthwiseConv2dNative":
        return 2 * written * elements(shapes[1][:2])
    if operation.type in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):  # transposed forward
        return 2 * elements(shapes[2]) * elements(shapes[1][:-1])
    return max(written, *map(elements, shapes), 0)


def _contracted(equation: str, shapes: Sequence[Any]) -> int:
    """Number of products in an element of an einsum."""
    terms, result = equation.replace(" ", "").split("->")
    sizes: dict[str, int | None] = {}
    for term, shape in zip(terms.split(","), shapes, strict=True):
        before, _, after = term.partition("...")
        sizes.update(zip(before, shape[: len(before)], strict=True))
        sizes.update(zip(after, shape[len(shape) - len(after) :], strict=True))
    contracted = [size_of(size) for label, size in sizes.items() if label not in result]
    return math.prod(contracted)


def elements(shape: Any) -> int:
    """Number of elements of a shape; unknown dimensions count as 1."""
    return math.prod(map(size_of, shape)) if shape.rank is not None else 1


def size_of(dimension: int | None) -> int:
    """A dimension; 1 if it is unknown."""
    return 1 if dimension is None else dimension


class Operation(NamedTuple):
    """Costs of one operation, forward."""

    flops: float
    """Floating-point operations, for one example."""
    moved_bytes: float
    """Bytes of activations that it reads and writes, for one example."""
    weight_bytes: float = 0.0
    """Bytes of weights that it reads, once for all examples."""
    winograd: bool = False
    """Whether it is a convolution with a 3 x 3 filter and stride 1, which needs fewer
    multiplications with Winograd's algorithm."""
    split: bool = False
    """Whether ``parallel.shards`` divides it."""

    def divided(self, shards: int) -> Operation:
        """The costs of each shard of it."""
        if not self.split:
            return self
        return self._replace(
            flops=self.flops / shards,
            moved_bytes=self.moved_bytes / shards,
            weight_bytes=self.weight_bytes / shards,
        )
