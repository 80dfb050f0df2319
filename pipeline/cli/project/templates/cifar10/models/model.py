"""A convolutional network: three times convolution and pooling, then two dense layers."""

import keras
from keras import layers


def build(input_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """Builds the model.

    Args:
        input_shape: height, width and channels of the pictures.
        num_classes: the number of logits.
    """
    images = hidden = keras.Input(input_shape, name="images")
    for filters in (32, 64, 128):
        hidden = layers.Conv2D(filters, 3, padding="same", activation="relu")(hidden)
        hidden = layers.MaxPooling2D()(hidden)
    hidden = layers.Flatten()(hidden)
    hidden = layers.Dense(128, activation="relu")(hidden)
    return keras.Model(images, layers.Dense(num_classes)(hidden))
