"""Models with layers that shards divide, for images ``[batch, 32, 32, 3]``."""

from typing import Any

import keras

layers = keras.layers


def mlp(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Two pairs of Dense, dropout, a regularizer."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.AveragePooling2D(4),
            layers.Flatten(),
            layers.Dense(64, activation="gelu", kernel_regularizer="l2", name="up"),
            layers.Dropout(0.3),
            layers.Dense(48, name="down"),
            layers.LayerNormalization(),
            layers.Dense(300, activation="relu", name="last"),
            layers.Dense(num_classes, name="logits"),
        ]
    )


def cnn(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Convolutions with batch statistics, on divided and on whole channels."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(48, 3, 2, name="conv0"),
            layers.BatchNormalization(name="norm0"),
            layers.ReLU(),
            layers.Conv2D(40, 3, 2, padding="same", use_bias=False, name="conv1"),
            layers.BatchNormalization(name="norm1"),
            layers.ReLU(),
            layers.Dropout(0.2),
            layers.GlobalAveragePooling2D(),
            layers.Dense(num_classes, name="logits"),
        ]
    )


def vit(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Two blocks of a vision transformer."""
    inputs = keras.Input(input_shape)
    hidden = layers.Conv2D(36, 8, 8, name="patch")(inputs)
    hidden = layers.Reshape((16, 36))(hidden)
    for block in range(2):
        normal = layers.LayerNormalization(name=f"norm{block}")(hidden)
        attended = layers.MultiHeadAttention(4, 9, dropout=0.1, name=f"attention{block}")
        hidden = layers.Add(name=f"sum{block}")([hidden, attended(normal, normal)])
        wide = layers.Dense(72, activation="gelu", name=f"up{block}")(hidden)
        wide = layers.Dense(36, name=f"down{block}")(layers.Dropout(0.1)(wide))
        hidden = layers.Add(name=f"total{block}")([hidden, wide])
    hidden = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, layers.Dense(num_classes, name="logits")(hidden))


def head(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Divided logits."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.LayerNormalization(),
            layers.Dense(num_classes, name="logits"),
        ]
    )


def pair(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """One pair after trained weights, and nothing else that is divided."""
    del input_shape
    inputs = keras.Input((32, 32, 3))
    hidden = layers.GlobalAveragePooling2D()(inputs)
    hidden = layers.LayerNormalization(name="norm")(hidden)
    hidden = layers.Dense(2000, activation="gelu", name="up")(hidden)
    hidden = layers.Dense(num_classes, name="down")(hidden)
    return keras.Model(inputs, hidden)


NAMES: dict[str, Any] = {"mlp": mlp, "cnn": cnn, "vit": vit, "head": head}
