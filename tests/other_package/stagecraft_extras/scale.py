"""A layer that scales each channel, and the rule by which shards divide it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from stagecraft.extend import ShardRule, Split, Way, even


class Scale(keras.layers.Layer):
    """Multiplies by a weight ``[channels]``."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale


class ScaleRule(ShardRule):
    """By channels, after a layer that is divided by columns."""

    name = "scale"
    description = "Scale: channels, if its input is divided"
    layers = ("stagecraft_extras.scale:Scale",)

    def choose(self, call: Any) -> Way | None:
        if not call.is_divided:
            return None
        channels = call.variable("scale").shape[0]
        return Way("channels", {"scale": Split(0, even(channels, call.group.count))})

    def run(self, call: Any, way: Way) -> tf.Tensor:
        split = way.splits["scale"]
        inputs = call.group.slices(call.inputs, split.sizes)
        scales = call.slices("scale", split)
        return call.group.join(call.group.map(lambda _, x, scale: x * scale, inputs, scales))


SCALE = ScaleRule()
