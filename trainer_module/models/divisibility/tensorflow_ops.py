"""Finds stateful TensorFlow ops in users' layers: the engines may run a call several times."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.layers.refusal import ModelRefusedError
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.models.stages.stage import Segment

_WRITES = (
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "ResourceScatterAdd",
    "ResourceScatterUpdate",
    "ResourceStridedSliceAssign",
)
_DRAWS = (
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomGamma",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "RngReadAndSkip",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "StatefulUniformFullInt",
    "StatefulUniformInt",
    "TruncatedNormal",
)


def check(segment: Segment, values: Sequence[tf.Tensor], inputs: tf.Tensor, *, remat: bool) -> None:
    """Traces the training call of a segment with layers that are not Keras's.

    Raises:
        ModelRefusedError: a layer assigns a ``tf.Variable``, which no checkpoint contains and each
            part of a batch would assign; or, under ``remat``, draws again in each computation.
    """
    own = custom_layers(segment.model)
    if not own:
        return
    ops = _ops(segment, values, inputs)
    part = f"one of {', '.join(own)}"
    if writes := sorted(ops.intersection(_WRITES)):
        raise ModelRefusedError(
            part,
            f"assigns a tf.Variable ({writes[0]}), which the engines neither save nor divide",
            "create it with self.add_weight(trainable=False)",
        )
    if remat and (draws := sorted(ops.intersection(_DRAWS))):
        raise ModelRefusedError(
            part,
            f"draws with TensorFlow's {draws[0]}, but with parallel.remat the recomputation would "
            "draw other numbers",
            "draw with keras.random and the layer's SeedGenerator, or set parallel.remat: false",
        )


def custom_layers(model: keras.Model) -> list[str]:
    """Paths of the layers, and of the model itself, whose code is not Keras's."""
    layers = [(model.name, model), *walk(model)]
    return [
        path
        for path, layer in layers
        if isinstance(layer, keras.layers.Lambda)
        or type(layer).call.__module__.partition(".")[0] != "keras"
    ]


def _ops(segment: Segment, values: Sequence[tf.Tensor], inputs: tf.Tensor) -> set[str]:
    """Types of the ops in the graph of a training call, including its functions."""

    def call(inputs: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
        rows = tf.range(tf.shape(inputs)[0], dtype=tf.int64)
        return segment.call(values, inputs, tf.constant(0, tf.int64), rows).outputs

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in (inputs, *values)]
    graph = tf.function(call, autograph=False).get_concrete_function(*specs).graph.as_graph_def()
    inside = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *inside)}
