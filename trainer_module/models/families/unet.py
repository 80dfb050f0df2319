"""U-Nets (Ronneberger, Fischer, Brox 2015, "U-Net", section 2)."""

from __future__ import annotations

from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models.family import ModelFamily

FILTERS = 16
"""Filters at the full size; each half size has twice as many."""


class UNet(ModelFamily):
    """Pairs of convolutions at ever smaller sizes, and back, with a skip at each size.

    Unlike the paper's, its convolutions keep the size. It has no batch statistics, so that its
    gradients are those of the global batch however the batch is divided between devices.
    """

    name = "unet"
    description = "unet_DEPTH, such as unet_2: halves the sides DEPTH times; a class for each pixel"
    pattern = r"unet_(?P<depth>\d+)"
    examples = ("unet_2", "unet_3")

    def problem(self, **sizes: int) -> str:
        """The problem with the depth; empty: none."""
        return "" if sizes["depth"] else "has a depth of less than 1"

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """A model of pictures that gives logits ``[batch, height, width, num_classes]``.

        Raises:
            SettingError: a side is not divisible often enough.
        """
        import keras
        from keras import layers

        depth = sizes["depth"]
        if any(side % 2**depth for side in input_shape[:2]):
            height, width = input_shape[:2]
            problem = f"halves the sides {depth} times, but pictures have {height} x {width} pixels"
            raise SettingError("train.model", f"unet_{depth}", problem, "a smaller depth")
        images = hidden = keras.Input(input_shape, name="images")
        skips = []
        for level in range(depth):
            hidden = _convolutions(hidden, FILTERS * 2**level, f"down{level}")
            skips.append(hidden)
            hidden = layers.MaxPooling2D(name=f"down{level}_pool")(hidden)
        hidden = _convolutions(hidden, FILTERS * 2**depth, "bottom")
        for level in reversed(range(depth)):
            filters = FILTERS * 2**level
            hidden = layers.Conv2DTranspose(filters, 2, strides=2, name=f"up{level}_scale")(hidden)
            hidden = layers.Concatenate(name=f"up{level}_skip")([skips[level], hidden])
            hidden = _convolutions(hidden, filters, f"up{level}")
        logits = layers.Conv2D(num_classes, 1, name="logits")(hidden)
        return keras.Model(images, logits, name=f"unet_{depth}")


UNET = UNet()


def _convolutions(hidden: Any, filters: int, name: str) -> Any:
    from keras import layers

    for number in (1, 2):
        hidden = layers.Conv2D(
            filters,
            3,
            padding="same",
            activation="relu",
            kernel_initializer="he_normal",
            name=f"{name}_conv{number}",
        )(hidden)
    return hidden
