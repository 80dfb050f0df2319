"""The convolutional network of a textbook: three blocks and a classifier."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.models.family import ModelFamily

FILTERS = (32, 64, 128)


class Cnn(ModelFamily):
    """Three times convolution, ReLU and pooling to half the size; then two dense layers.

    0.36 million weights for 32 by 32 images. It has neither batch statistics nor dropout, so
    that its gradients are those of the global batch however the batch is divided between devices.
    """

    name = "cnn"
    description = "three convolutions and two dense layers, 0.36 million weights"
    pattern = "cnn"
    examples = ("cnn",)

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """Builds the network; ``sizes`` is empty."""
        import keras
        from keras import layers

        images = hidden = keras.Input(input_shape, name="images")
        for block, filters in enumerate(FILTERS, start=1):
            hidden = layers.Conv2D(
                filters,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                name=f"block{block}_conv",
            )(hidden)
            hidden = layers.MaxPooling2D(name=f"block{block}_pool")(hidden)
        hidden = layers.Flatten(name="flatten")(hidden)
        hidden = layers.Dense(128, activation="relu", kernel_initializer="he_normal", name="dense")(
            hidden
        )
        logits = layers.Dense(num_classes, name="logits")(hidden)
        return keras.Model(images, logits, name="cnn")


CNN = Cnn()
