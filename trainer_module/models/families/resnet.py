"""ResNets for small pictures (He et al. 2015, "Deep residual learning", section 4.2)."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

FILTERS = (16, 32, 64)


def build(input_shape: tuple[int, int, int], num_classes: int, *, depth: int) -> keras.Model:
    """``depth = 6n + 2`` layers: a convolution, three groups of n blocks, and a dense layer.

    ResNet-20 has 0.27 million weights, ResNet-56 0.85 million (table 6 of the paper).

    Args:
        input_shape: ``(height, width, channels)``.
        num_classes: number of logits.
        depth: 8, 14, 20, …

    Raises:
        ValueError: no such depth.
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth {depth} is not 6n + 2 with n of 1 or more")
    images = keras.Input(input_shape, name="images")
    hidden = _convolution(images, FILTERS[0], 1, "stem")
    hidden = layers.ReLU(name="stem_relu")(hidden)
    for group, filters in enumerate(FILTERS, start=1):
        for block in range(1, blocks + 1):
            strides = 2 if group > 1 and block == 1 else 1
            hidden = _block(hidden, filters, strides, f"group{group}_block{block}")
    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    logits = layers.Dense(num_classes, kernel_initializer="he_normal", name="logits")(hidden)
    return keras.Model(images, logits, name=f"resnet{depth}")


def _block(inputs: Any, filters: int, strides: int, name: str) -> Any:
    hidden = _convolution(inputs, filters, strides, f"{name}_1")
    hidden = layers.ReLU(name=f"{name}_1_relu")(hidden)
    hidden = _convolution(hidden, filters, 1, f"{name}_2")
    if strides != 1 or inputs.shape[-1] != filters:
        inputs = Shortcut(filters, strides, name=f"{name}_shortcut")(inputs)
    hidden = layers.Add(name=f"{name}_add")([inputs, hidden])
    return layers.ReLU(name=f"{name}_relu")(hidden)


def _convolution(inputs: Any, filters: int, strides: int, name: str) -> Any:
    """A 3 by 3 convolution and batch normalisation."""
    hidden = layers.Conv2D(
        filters,
        3,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=f"{name}_conv",
    )(inputs)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")(hidden)


@keras.saving.register_keras_serializable("stagecraft")
class Shortcut(layers.Layer):
    """The shortcut without weights (option A): every ``strides``-th pixel, new channels zero."""

    def __init__(self, filters: int, strides: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def call(self, inputs: Any) -> Any:
        """``[batch, height, width, channels]`` to ``[batch, h, w, filters]``."""
        inputs = inputs[:, :: self.strides, :: self.strides, :]
        new = self.filters - inputs.shape[-1]
        return keras.ops.pad(inputs, [(0, 0), (0, 0), (0, 0), (new // 2, new - new // 2)])

    def get_config(self) -> dict[str, Any]:
        """What Keras makes a copy of this layer from."""
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}
