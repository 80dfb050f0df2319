"""Layers without weights that treat each channel by itself: divided inputs stay divided."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.rule import (
    ShardRule,
    channels_obstacle,
    is_elementwise,
)
from stagecraft.trainer_module.tensor_parallel.split import Way


class ChannelwiseRule(ShardRule):
    """Calls the layer itself on each piece."""

    name = "channelwise"
    description = "activations, pooling, padding and resizing, if their input is divided"
    layers = (
        *("Activation", "ReLU", "LeakyReLU", "ELU", "Identity"),
        *(
            f"{kind}Pooling{rank}D"
            for kind in ("Average", "Max", "GlobalAverage", "GlobalMax")
            for rank in (1, 2, 3)
        ),
        *(
            f"{kind}{rank}D"
            for kind in ("Cropping", "UpSampling", "ZeroPadding")
            for rank in (1, 2, 3)
        ),
    )

    def obstacle(self, layer: Any, count: int) -> str:
        """Activations that need all channels, and channels that are not the last axis."""
        if not is_elementwise(getattr(layer, "activation", None)):
            return "has an activation that may need all channels"
        return channels_obstacle(layer)

    def choose(self, call: LayerCall) -> Way:
        """Each piece by itself."""
        return Way("channels", {})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Calls the layer on the whole tensor, or on each piece."""
        pieces = call.group.pieces(call.inputs)
        (name, inputs), *more = call.arguments.items()
        rest = dict(more)
        if pieces is None:
            return call.own(inputs, **rest)

        def run(_: int, piece: tf.Tensor) -> Any:
            return call.own(**{name: piece}, **rest)

        return call.group.join(call.group.map(run, pieces))


CHANNELWISE = ChannelwiseRule()
