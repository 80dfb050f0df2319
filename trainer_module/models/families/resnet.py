"""ResNets for small images (He et al. 2015, "Deep residual learning", section 4.2)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.models import family

FILTERS = (16, 32, 64)


class ResNet(family.ModelFamily):
    """``depth = 6n + 2`` layers: a convolution, three groups of n blocks, and a dense layer.

    ResNet-20 has 0.27 million weights, ResNet-56 0.85 million (table 6 of the paper).
    """

    name = "resnet"
    description = "resnet20, resnet56, … (6n + 2 layers): for small images (He et al. 2015)"
    pattern = r"resnet(?P<depth>\d+)"
    examples = ("resnet20", "resnet56")

    def problem(self, **sizes: int) -> str:
        """The problem with the depth; empty: none."""
        return family.depth_problem(sizes["depth"], 2)

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """The network of a depth."""
        import keras
        from keras import layers

        depth = sizes["depth"]
        blocks = (depth - 2) // 6
        images = keras.Input(input_shape, name="images")
        hidden = _convolution(images, FILTERS[0], 1, "stem")
        hidden = layers.ReLU(name="stem_relu")(hidden)
        logits = family.classifier(family.groups(hidden, FILTERS, blocks, _block), num_classes)
        return keras.Model(images, logits, name=f"resnet{depth}")


RESNET = ResNet()


def _block(inputs: Any, filters: int, strides: int, name: str) -> Any:
    from keras import layers

    from stagecraft.trainer_module.models.layers.own_layers import Shortcut

    hidden = _convolution(inputs, filters, strides, f"{name}_1")
    hidden = layers.ReLU(name=f"{name}_1_relu")(hidden)
    hidden = _convolution(hidden, filters, 1, f"{name}_2")
    if strides != 1 or inputs.shape[-1] != filters:
        inputs = Shortcut(filters, strides, name=f"{name}_shortcut")(inputs)
    hidden = layers.Add(name=f"{name}_add")([inputs, hidden])
    return layers.ReLU(name=f"{name}_relu")(hidden)


def _convolution(inputs: Any, filters: int, strides: int, name: str) -> Any:
    """A 3 by 3 convolution and batch normalisation."""
    return family.normalisation(
        family.convolution(inputs, filters, 3, strides, f"{name}_conv"), name
    )
