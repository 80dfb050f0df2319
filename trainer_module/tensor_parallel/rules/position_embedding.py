"""Learned vectors of positions: by columns (entries of the vectors)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class PositionEmbeddingRule(ShardRule):
    """Splits ``embeddings [length, width]``. The first device joins the vectors of a sequence."""

    name = "position_embedding"
    description = "KerasHub's PositionEmbedding: entries of its vectors"
    layers = ("keras_hub:PositionEmbedding",)

    def obstacle(self, layer: Any, count: int) -> str:
        """Vectors that are too short."""
        width = layer.position_embeddings.shape[1]
        return f"has vectors of {width}" if width < count else ""

    def choose(self, call: LayerCall) -> Way:
        """By columns."""
        width = call.layer.position_embeddings.shape[1]
        return Way("columns", {"embeddings": Split(1, even(width, call.group.count))})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Takes the positions from each slice; one copy serves all examples."""
        shape, start = tf.shape(call.inputs), call.arguments.get("start_index", 0)
        slices = call.slices("embeddings", way.splits["embeddings"])
        dtype = call.layer.compute_dtype

        def taken(_: int, table: tf.Tensor) -> tf.Tensor:
            return tf.cast(table[start : start + shape[-2]], dtype)

        positions = call.group.join(call.group.map(taken, slices))
        positions.set_shape(call.inputs.shape[-2:])
        return tf.broadcast_to(positions, shape)


POSITION_EMBEDDING = PositionEmbeddingRule()
