"""Models that a parity check once misjudged, or could misjudge: what users bring, made small."""

from typing import Any

import keras
import tensorflow as tf

Shape = tuple[int, ...]


def _pooled(images: Any, hidden: Any, num_classes: int, **of_head: Any) -> keras.Model:
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(images, keras.layers.Dense(num_classes, name="head", **of_head)(hidden))


class Positions(keras.layers.Layer):
    """Adds an embedding to each patch: `[batch, patches, width]`."""

    def build(self, shape: Any) -> None:
        self.embedding = self.add_weight(
            shape=(1, *shape[1:]), initializer="random_normal", name="embedding"
        )

    def call(self, patches: Any) -> Any:
        return patches + self.embedding


def vit(input_shape: Shape, num_classes: int) -> keras.Model:
    """A vision transformer of width 16 and depth 2. The gradient of its key biases is 0: softmax
    takes no notice of a number that is added to all of its inputs."""
    images = keras.Input(input_shape)
    hidden = keras.layers.Conv2D(16, 8, strides=8, name="patches")(images)
    hidden = Positions(name="positions")(keras.layers.Reshape((-1, 16))(hidden))
    for number in range(2):
        normal = keras.layers.LayerNormalization()(hidden)
        attended = keras.layers.MultiHeadAttention(2, 8, name=f"attention{number}")(normal, normal)
        hidden = keras.layers.Add(name=f"attended{number}")([hidden, attended])
        normal = keras.layers.LayerNormalization()(hidden)
        wide = keras.layers.Dense(32, activation="gelu")(normal)
        hidden = keras.layers.Add(name=f"block{number}")([hidden, keras.layers.Dense(16)(wide)])
    hidden = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(hidden))
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden))


def mobilenet(input_shape: Shape, num_classes: int) -> keras.Model:
    """Keras's own, as narrow as it goes: batch statistics, depthwise convolutions, relu6."""
    return keras.applications.MobileNetV2(
        input_shape=input_shape,
        alpha=0.35,
        weights=None,
        classes=num_classes,
        classifier_activation=None,
    )


def group_norm(input_shape: Shape, num_classes: int) -> keras.Model:
    """Each channel is a group: the biases of the convolutions before them cancel."""
    return _convolutions(input_shape, num_classes, lambda: keras.layers.GroupNormalization(-1))


def batch_norm(input_shape: Shape, num_classes: int) -> keras.Model:
    """The biases of the convolutions cancel over a batch."""
    return _convolutions(input_shape, num_classes, keras.layers.BatchNormalization)


def _convolutions(input_shape: Shape, num_classes: int, normalization: Any) -> keras.Model:
    images = hidden = keras.Input(input_shape)
    for number in range(2):
        hidden = keras.layers.Conv2D(8, 3, strides=2, name=f"conv{number}")(hidden)
        hidden = keras.layers.ReLU(name=f"block{number}")(normalization()(hidden))
    return _pooled(images, hidden, num_classes)


def zero_and_float32(input_shape: Shape, num_classes: int) -> keras.Model:
    """A bias whose gradient is zero, before a head in float32."""
    images = keras.Input(input_shape)
    hidden = keras.layers.Conv2D(8, 4, strides=4, name="conv")(images)
    # Without scale and shift, so that there are few variables.
    normal = keras.layers.GroupNormalization(-1, center=False, scale=False)
    hidden = keras.layers.Activation("tanh")(normal(hidden))
    return _pooled(images, hidden, num_classes, dtype="float32")


class OwnAttention(keras.layers.Layer):
    """All in one layer: its key's bias cancels between its own operations."""

    def build(self, shape: Any) -> None:
        width = shape[-1]
        self.kernel = self.add_weight(shape=(width, 3 * width), name="kernel")
        # Not 0, and penalised: the gradient is the penalty's alone.
        self.key_bias = self.add_weight(
            shape=(width,),
            initializer="random_normal",
            regularizer=keras.regularizers.L2(1e-4),
            name="key_bias",
        )

    def call(self, tokens: Any) -> Any:
        query, key, value = keras.ops.split(tokens @ self.kernel, 3, axis=-1)
        scores = query @ keras.ops.transpose(key + self.key_bias, (0, 2, 1))
        return keras.ops.softmax(scores) @ value


def own_attention(input_shape: Shape, num_classes: int) -> keras.Model:
    """A user's own attention, without a layer of Keras in it."""
    images = keras.Input(input_shape)
    hidden = keras.layers.Conv2D(16, 8, strides=8, name="patches")(images)
    hidden = OwnAttention(name="attention")(keras.layers.Reshape((-1, 16))(hidden))
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden))


def _base(input_shape: Shape) -> tuple[Any, Any]:
    images = keras.Input(input_shape)
    hidden = keras.layers.Conv2D(8, 3, strides=2, activation="relu", name="conv")(images)
    hidden = keras.layers.Conv2D(8, 3, strides=2, activation="relu", name="block")(hidden)
    return images, hidden


def float32_head(input_shape: Shape, num_classes: int) -> keras.Model:
    """As Keras's guide to mixed precision has it."""
    images, hidden = _base(input_shape)
    return _pooled(images, hidden, num_classes, dtype="float32")


class Cast(keras.layers.Layer):
    """A dense layer that computes in float32, whatever its policy is."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")
        self.bias = self.add_weight(shape=(8,), initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        single, kernel, bias = (
            tf.cast(value, tf.float32) for value in (inputs, self.kernel, self.bias)
        )
        outputs = tf.math.tanh(tf.matmul(single, kernel) + bias)
        return tf.cast(outputs, inputs.dtype)


def cast_inside(input_shape: Shape, num_classes: int) -> keras.Model:
    """Float32 in a layer's code, where no policy reaches."""
    images, hidden = _base(input_shape)
    hidden = keras.layers.GlobalAveragePooling2D()(Cast()(hidden))
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden))


class Penalty(keras.layers.Layer):
    """Adds a loss that `reduce` makes of all that passes."""

    def __init__(self, reduce: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduce = reduce

    def call(self, inputs: Any) -> Any:
        self.add_loss(1e-2 * self.reduce(keras.ops.square(inputs)))
        return inputs


def sum_penalties(input_shape: Shape, num_classes: int) -> keras.Model:
    """A sum over the batch, by `activity_regularizer` and by `add_loss`."""
    images, hidden = _base(input_shape)
    hidden = Penalty(tf.reduce_sum, name="penalty")(hidden)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    hidden = keras.layers.Dense(16, activity_regularizer=keras.regularizers.L2(1e-2))(hidden)
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden))


def mean_penalties(input_shape: Shape, num_classes: int) -> keras.Model:
    """A mean over the batch, and a penalty of weights alone."""
    images, hidden = _base(input_shape)
    hidden = Penalty(tf.reduce_mean, name="penalty")(hidden)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    hidden = keras.layers.Dense(16, kernel_regularizer=keras.regularizers.L2(1e-2))(hidden)
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden))


def norm_sum_penalties(input_shape: Shape, num_classes: int) -> keras.Model:
    """A sum over the batch beside batch statistics, which are those of a part."""
    return _norm_penalties(input_shape, num_classes, tf.reduce_sum)


def norm_mean_penalties(input_shape: Shape, num_classes: int) -> keras.Model:
    """A mean over the batch beside batch statistics."""
    return _norm_penalties(input_shape, num_classes, tf.reduce_mean)


def _norm_penalties(input_shape: Shape, num_classes: int, reduce: Any) -> keras.Model:
    images, hidden = _base(input_shape)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = Penalty(reduce, name="penalty")(hidden)
    hidden = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(hidden))
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden))


def spectral(input_shape: Shape, num_classes: int) -> keras.Model:
    """A kernel that each training step divides by its largest singular value."""
    images, hidden = _base(input_shape)
    conv = keras.layers.Conv2D(8, 3, name="inner")
    hidden = keras.layers.SpectralNormalization(conv, name="spectral")(hidden)
    return _pooled(images, hidden, num_classes)
