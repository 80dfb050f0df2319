"""A multilayer perceptron."""

from __future__ import annotations

from typing import Any

from stagecraft.extend import ModelFamily


class Perceptron(ModelFamily):
    """One hidden layer."""

    name = "perceptron"
    description = "perceptron_WIDTH: one hidden layer"
    pattern = r"perceptron_(?P<width>\d+)"
    examples = ("perceptron_8",)

    def problem(self, **sizes: int) -> str:
        """Of the width."""
        return "" if sizes["width"] else "has no width"

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """The network of a width."""
        import keras

        return keras.Sequential(
            [
                keras.Input(input_shape),
                keras.layers.AveragePooling2D(4),
                keras.layers.Flatten(),
                keras.layers.Dense(sizes["width"], activation="tanh"),
                keras.layers.Dense(num_classes),
            ]
        )


PERCEPTRON = Perceptron()
