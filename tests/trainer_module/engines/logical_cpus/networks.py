"""Models as users write them, each with something that is hard to split."""

from typing import Any

import keras
import tensorflow as tf

layers = keras.layers


def plain(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Nothing in it depends on how a batch is split."""
    return _network(input_shape, num_classes)


def norm(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """With BatchNorm and dropout."""
    return _network(input_shape, num_classes, norm=True)


def drop(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """With dropout, whose draws do not depend on how a batch is split."""
    return _network(input_shape, num_classes, dropout=0.3)


def penalised(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """add_loss, a regularizer, and a constraint, in different stages."""
    return _network(
        input_shape,
        num_classes,
        kernel_regularizer="l2",
        kernel_constraint=keras.constraints.UnitNorm(axis=[0, 1, 2]),
        between=lambda index: [MeanSquare(name=f"mean_square{index}")],
    )


def repeated(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Four equal blocks, with dropout and BatchNorm."""
    images = keras.Input(input_shape)
    hidden = layers.Reshape((16, 12))(layers.AveragePooling2D(4)(images))
    for _ in range(4):
        attention = layers.MultiHeadAttention(2, 6, dropout=0.2)(hidden, hidden)
        hidden = layers.Add()([hidden, layers.Dropout(0.3)(attention)])
        inner = layers.Dense(24, "gelu")(layers.LayerNormalization()(hidden))
        hidden = layers.BatchNormalization()(layers.Add()([hidden, layers.Dense(12)(inner)]))
    return keras.Model(images, layers.Dense(num_classes)(layers.Flatten()(hidden)))


def masked(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Four equal blocks of a single layer each, which take a mask of booleans."""
    images = keras.Input(input_shape)
    hidden = layers.Reshape((16, 12))(layers.AveragePooling2D(4)(images))
    mask = keras.ops.any(hidden > 0, axis=-1)
    for _ in range(4):
        attention = layers.MultiHeadAttention(2, 6, dropout=0.2)
        hidden = attention(hidden, hidden, query_mask=mask, value_mask=mask)
    return keras.Model(images, layers.Dense(num_classes)(layers.Flatten()(hidden)))


def stopped(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """No gradient goes through one of two tensors between stages."""
    images = keras.Input(input_shape)
    hidden = layers.Flatten(name="flatten")(layers.AveragePooling2D(8, name="shrink")(images))
    one = layers.Dense(5, "tanh", name="one")(hidden)
    other = keras.ops.log(layers.Dense(5, "relu", name="other")(hidden) + 1e-12)
    both = layers.Add(name="sum")([one, keras.ops.stop_gradient(other)])
    return keras.Model(images, layers.Dense(num_classes, name="logits")(both))


def frozen(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """The first stage has nothing to train, and a BatchNorm in the second is frozen."""
    model = _network(input_shape, num_classes, norm=True)
    for name in ("conv0", "norm0", "norm1"):
        model.get_layer(name).trainable = False
    return model


def without_weights(input_shape: tuple[int, ...], num_classes: int) -> list[keras.Model]:
    """The first and the third of five stages have no weights; the fourth is subclassed."""
    network = keras.Sequential
    return [
        network([keras.Input(input_shape), layers.AveragePooling2D(4)], name="shrink"),
        network([keras.Input((8, 8, 3)), layers.Conv2D(4, 3, 2, name="conv")], name="convolve"),
        network([keras.Input((3, 3, 4)), layers.ReLU(), layers.Flatten()], name="flatten"),
        Subclassed(name="subclassed"),
        network([keras.Input((6,)), layers.Dense(num_classes, name="logits")], name="head"),
    ]


def subclassed(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    del input_shape
    return Whole(num_classes)


def looked_up(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """An Embedding, whose gradient is sparse, behind a place where integers are alive."""
    images = keras.Input(input_shape)
    hidden = layers.AveragePooling2D(8, name="shrink")(images)
    hidden = layers.Dense(5, name="scores")(hidden)
    hidden = Quantise(name="quantise")(hidden)
    hidden = layers.Embedding(16, 3, name="look_up")(hidden)
    hidden = layers.Flatten(name="flatten")(hidden)
    return keras.Model(images, layers.Dense(num_classes, name="logits")(hidden))


def sharing(input_shape: tuple[int, ...], num_classes: int) -> list[keras.Model]:
    """Two stages with one layer."""
    shared = layers.Conv2D(3, 3, padding="same", activation="tanh", name="shared")
    head = [shared, layers.Flatten(), layers.Dense(num_classes)]
    return [
        keras.Sequential([keras.Input(input_shape), layers.AveragePooling2D(8), shared]),
        keras.Sequential([keras.Input((4, 4, 3)), *head]),
    ]


def misplaced(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """A layer that chooses its device by itself."""
    return _network(
        input_shape, num_classes, between=lambda index: [OnTheFirst(name=f"own{index}")]
    )


class MeanSquare(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        return inputs


class OnTheFirst(layers.Layer):
    def call(self, inputs: Any) -> Any:
        with tf.device("CPU:0"):
            return tf.nn.softplus(inputs)


class Quantise(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return keras.ops.cast(keras.ops.clip(4 * inputs + 8, 0, 15), "int32")

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(inputs.shape, "int32")


class Subclassed(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = layers.Dense(6, activation="tanh", name="inner")

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)


class Whole(keras.Model):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.shrink = layers.AveragePooling2D(4)
        self.flatten = layers.Flatten()
        self.drop = layers.Dropout(0.5)
        self.head = layers.Dense(num_classes, kernel_regularizer="l2")

    def call(self, images: Any) -> Any:
        return self.head(self.drop(self.flatten(self.shrink(images))))


def _network(
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    norm: bool = False,
    dropout: float = 0.0,
    between: Any = lambda index: [],
    **of_kernels: Any,
) -> keras.Model:
    images = hidden = keras.Input(input_shape)
    for index, filters in enumerate((4, 6)):
        hidden = layers.Conv2D(filters, 3, 4, name=f"conv{index}", **of_kernels)(hidden)
        if norm:
            hidden = layers.BatchNormalization(name=f"norm{index}")(hidden)
        for layer in between(index):
            hidden = layer(hidden)
        hidden = layers.Activation("tanh", name=f"tanh{index}")(hidden)
        if norm or dropout:
            hidden = layers.Dropout(dropout or 0.3, name=f"drop{index}")(hidden)
    hidden = layers.Flatten(name="flatten")(hidden)
    hidden = layers.Dense(5, activation="tanh", name="dense")(hidden)
    return keras.Model(images, layers.Dense(num_classes, name="logits")(hidden))
