"""Random layers: each shard drops what one device would drop of its channels."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.layers import random_state
from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule, channels_obstacle
from stagecraft.trainer_module.tensor_parallel.split import Split, Way


class DropoutRule(ShardRule):
    """Multiplies by a slice of what the layer makes of ones; noise is added to zeros."""

    name = "dropout"
    description = "Dropout, SpatialDropout, GaussianDropout, GaussianNoise, if the input is divided"
    layers = (
        *("Dropout", "GaussianDropout", "GaussianNoise"),
        *("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
    )

    def obstacle(self, layer: Any, count: int) -> str:
        """Channels that are not the last axis."""
        return channels_obstacle(layer)

    def choose(self, call: LayerCall) -> Way:
        """Each piece by itself."""
        return Way("channels", {})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Draws for the whole tensor on each shard, as one device does."""
        inputs, training = call.inputs, call.arguments.get("training", False)
        pieces = call.group.pieces(inputs)
        if pieces is not None and not training:
            return call.group.join(pieces)
        if pieces is None or random_state.current() is None:
            return call.own(inputs, training=training)
        split = Split(len(inputs.shape) - 1, tuple(piece.shape[-1] for piece in pieces))
        adds = issubclass(call.kind, keras.layers.GaussianNoise)

        def run(shard: int, piece: tf.Tensor) -> tf.Tensor:
            shape = tf.concat([tf.shape(piece)[:-1], [sum(split.sizes)]], axis=0)
            neutral = tf.zeros(shape, piece.dtype) if adds else tf.ones(shape, piece.dtype)
            neutral.set_shape(inputs.shape)
            drawn = split.cut(call.own(neutral, training=True), shard)
            return piece + drawn if adds else piece * drawn

        return call.group.join(call.group.map(run, pieces))


DROPOUT = DropoutRule()
