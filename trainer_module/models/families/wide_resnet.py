"""Wide ResNets (Zagoruyko and Komodakis 2016, "Wide residual networks", section 2)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.models.family import ModelFamily, depth_problem

FILTERS = (16, 32, 64)
"""Of the three groups, times the width."""


class WideResNet(ModelFamily):
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
        """Of the depth or the width."""
        if sizes["width"] < 1:
            return "has a width of less than 1"
        return depth_problem(sizes["depth"], 4)

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """The network of a depth, with as many times the filters of a ResNet as its width."""
        import keras
        from keras import layers

        depth, width = sizes["depth"], sizes["width"]
        blocks = (depth - 4) // 6
        images = keras.Input(input_shape, name="images")
        hidden = _convolution(images, FILTERS[0], 3, 1, "stem_conv")
        for group, filters in enumerate(FILTERS, start=1):
            for block in range(1, blocks + 1):
                strides = 2 if group > 1 and block == 1 else 1
                hidden = _block(hidden, filters * width, strides, f"group{group}_block{block}")
        hidden = _norm_relu(hidden, "head")
        hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
        logits = layers.Dense(num_classes, kernel_initializer="he_normal", name="logits")(hidden)
        return keras.Model(images, logits, name=f"wide_resnet_{depth}_{width}")


WIDE_RESNET = WideResNet()


def _block(inputs: Any, filters: int, strides: int, name: str) -> Any:
    from keras import layers

    activated = _norm_relu(inputs, f"{name}_1")
    shortcut = inputs
    if strides != 1 or inputs.shape[-1] != filters:
        shortcut = _convolution(activated, filters, 1, strides, f"{name}_shortcut")
    hidden = _convolution(activated, filters, 3, strides, f"{name}_1_conv")
    hidden = _convolution(_norm_relu(hidden, f"{name}_2"), filters, 3, 1, f"{name}_2_conv")
    return layers.Add(name=f"{name}_add")([shortcut, hidden])


def _norm_relu(inputs: Any, name: str) -> Any:
    from keras import layers

    hidden = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")(inputs)
    return layers.ReLU(name=f"{name}_relu")(hidden)


def _convolution(inputs: Any, filters: int, size: int, strides: int, name: str) -> Any:
    from keras import layers

    return layers.Conv2D(
        filters,
        size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(inputs)
