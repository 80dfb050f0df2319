"""Computes the costs of the stages of a model: parameters, operations, bytes.

A model's own layers count as well as Keras's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models.layers.scope import floatx
from stagecraft.trainer_module.models.stages import (
    alike,
    blank,
    functional,
    graph_operations,
    inputs as model_inputs,
)
from stagecraft.trainer_module.models.stages.operations import Operation

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
        if model_inputs.are_open(model_inputs.of(stage)):
            model_inputs.note(stage, tf.nest.map_structure(_of_example, inputs))
        key = alike.key(stage)
        if key is None:
            traced = _traced(stage, inputs, keeps)
        else:
            key = key, alike.specs_key(inputs)
            traced = known[key] = known.get(key) or _traced(stage, inputs, keeps)
        names = _layer_names(stage)
        sizes = [functional.tensor_bytes(each) for each in tf.nest.flatten(inputs)]
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
                output_bytes=functional.tensor_bytes(traced.outputs),
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
    """What the graph of a stage says of all stages that compute the same."""

    outputs: Nest
    kept: graph_operations.Kept
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
            "flops": graph_operations.flops(graph.get_operations()),
            "kind": _kind(graph, stage.trainable_variables),
            "operations": tuple(graph_operations.operations(graph, weights)),
        },
    )


def _trace(model: keras.Model, inputs: Nest, *, training: bool) -> Any:
    """The concrete function of one example; its last inputs are weights."""

    def call(values: Nest) -> Nest:
        return model(values, training=training)

    in_float64 = any(layer.compute_dtype == "float64" for layer in model.layers or [model])
    with floatx("float64" if in_float64 else keras.config.floatx()):
        if training or blank.are_blank(model.variables):
            return blank.trace(model.variables, call, model_inputs.specs(inputs, 1))
        function = tf.function(call, autograph=False)
        return function.get_concrete_function(model_inputs.specs(inputs, 1))


def _layer_names(model: keras.Model) -> list[str]:
    """Names in the order of computation if that is readable, otherwise of construction."""
    if functional.obstacle(model):
        return [layer.name for layer in model.layers] or [model.name]
    called = [node.operation for node in functional.computed(model)]
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


def _kept(model: keras.Model, inputs: Nest, graph: Any) -> graph_operations.Kept:
    """What the gradient of a call in training takes.

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
            return graph_operations.kept(concrete.graph, taken, count, outputs)
    except Exception as error:  # of an operation without a gradient, or whatever a layer raises
        _log.debug("%s: what its gradient takes is not known: %s", model.name, error)
    return _outputs(model, inputs, graph)


def _outputs(model: keras.Model, inputs: Nest, graph: Any) -> graph_operations.Kept:
    """All layers' outputs; all that the graph computes if the layers are not readable."""
    unused = [False] * len(tf.nest.flatten(inputs))
    if not functional.obstacle(model):
        with contextlib.suppress(Exception):  # of a layer that cannot compute shapes
            size = functional.activation_bytes(model, inputs)
            return graph_operations.Kept(size, unused, [True] * len(graph.outputs))
    size = sum(
        graph_operations.elements(output.shape) * output.dtype.size
        for operation in graph.get_operations()
        if operation.type not in graph_operations.MOVES
        for output in operation.outputs
    )
    return graph_operations.Kept(size, unused, [True] * len(graph.outputs))


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
