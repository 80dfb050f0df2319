"""Wide ResNets (Zagoruyko and Komodakis 2016, "Wide residual networks", section 2)."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

FILTERS = (16, 32, 64)
"""Of the three groups, times the width."""


def build(
    input_shape: tuple[int, int, int], num_classes: int, *, depth: int, width: int
) -> keras.Model:
    """WRN-depth-width, ``depth = 6n + 4``: three groups of n blocks of two convolutions.

    Batch normalisation and ReLU come before each convolution; where a block changes the shape,
    its shortcut is a 1 by 1 convolution. WRN-16-8 has 11.0 million weights, WRN-28-10 36.5
    million (as in the paper's tables).

    Args:
        input_shape: ``(height, width, channels)``.
        num_classes: number of logits.
        depth: 10, 16, 22, …
        width: factor on the filters of a ResNet.

    Raises:
        ValueError: no such depth or width.
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth {depth} is not 6n + 4 with n of 1 or more")
    if width < 1:
        raise ValueError(f"width {width} is less than 1")
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


def _block(inputs: Any, filters: int, strides: int, name: str) -> Any:
    activated = _norm_relu(inputs, f"{name}_1")
    shortcut = inputs
    if strides != 1 or inputs.shape[-1] != filters:
        shortcut = _convolution(activated, filters, 1, strides, f"{name}_shortcut")
    hidden = _convolution(activated, filters, 3, strides, f"{name}_1_conv")
    hidden = _convolution(_norm_relu(hidden, f"{name}_2"), filters, 3, 1, f"{name}_2_conv")
    return layers.Add(name=f"{name}_add")([shortcut, hidden])


def _norm_relu(inputs: Any, name: str) -> Any:
    hidden = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")(inputs)
    return layers.ReLU(name=f"{name}_relu")(hidden)


def _convolution(inputs: Any, filters: int, size: int, strides: int, name: str) -> Any:
    return layers.Conv2D(
        filters,
        size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(inputs)
