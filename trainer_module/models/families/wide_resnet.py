"""Wide ResNets (Zagoruyko and Komodakis 2016, "Wide residual networks", section 2)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.models import family

FILTERS = (16, 32, 64)
"""Filters of the three groups, to be multiplied by the width."""


class WideResNet(family.ModelFamily):
    """WRN-depth-width, ``depth = 6n + 4``: three groups of n blocks of two convolutions.

    Batch normalisation and ReLU come before each convolution; where a block changes the shape,
    its shortcut is a 1 by 1 convolution. WRN-16-8 has 11.0 million weights, WRN-28-10 36.5
    million (as in the paper's tables).
    """

    name = "wide_resnet"
    description = (
        "wide_resnet_DEPTH_WIDTH (6n + 4 layers), such as wide_resnet_16_4 (Zagoruyko and "
        "Komodakis 2016)"
    )
    pattern = r"wide_resnet_(?P<depth>\d+)_(?P<width>\d+)"
    examples = ("wide_resnet_16_4", "wide_resnet_28_10")

    def problem(self, **sizes: int) -> str:
        """The problem with the depth or the width; empty: none."""
        if sizes["width"] < 1:
            return "has a width of less than 1"
        return family.depth_problem(sizes["depth"], 4)

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """The network of a depth, with as many times the filters of a ResNet as its width."""
        import keras

        depth, width = sizes["depth"], sizes["width"]
        blocks = (depth - 4) // 6
        images = keras.Input(input_shape, name="images")
        hidden = family.convolution(images, FILTERS[0], 3, 1, "stem_conv")
        hidden = family.groups(hidden, [width * each for each in FILTERS], blocks, _block)
        logits = family.classifier(_norm_relu(hidden, "head"), num_classes)
        return keras.Model(images, logits, name=f"wide_resnet_{depth}_{width}")


WIDE_RESNET = WideResNet()


def _block(inputs: Any, filters: int, strides: int, name: str) -> Any:
    from keras import layers

    activated = _norm_relu(inputs, f"{name}_1")
    shortcut = inputs
    if strides != 1 or inputs.shape[-1] != filters:
        shortcut = family.convolution(activated, filters, 1, strides, f"{name}_shortcut")
    hidden = family.convolution(activated, filters, 3, strides, f"{name}_1_conv")
    hidden = family.convolution(_norm_relu(hidden, f"{name}_2"), filters, 3, 1, f"{name}_2_conv")
    return layers.Add(name=f"{name}_add")([shortcut, hidden])


def _norm_relu(inputs: Any, name: str) -> Any:
    from keras import layers

    return layers.ReLU(name=f"{name}_relu")(family.normalisation(inputs, name))
