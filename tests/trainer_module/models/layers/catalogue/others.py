"""What else a model may have: regularizers, constraints, losses, states, parts of its own."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from catalogue.rows import CLASSES, Row, image, picture_model, row, shaped, vector

L = keras.layers


def rows() -> Iterator[Row]:
    yield from _weights()
    yield from _losses()
    yield from _layers()
    yield from _models()
    yield from _training()


def _weights() -> Iterator[Row]:
    for kind in (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2):
        yield _dense(f"regularizer {kind.__name__}", kind, "kernel_regularizer", kind, 0.01)
    orthogonal = keras.regularizers.OrthogonalRegularizer
    yield _dense("regularizer OrthogonalRegularizer", orthogonal, "kernel_regularizer", orthogonal)
    own: type = keras.regularizers.Regularizer
    yield _dense("regularizer of one's own", own, "kernel_regularizer", _Largest)
    for kind in (keras.constraints.MaxNorm, keras.constraints.MinMaxNorm):
        yield _dense(f"constraint {kind.__name__}", kind, "kernel_constraint", kind, 0.4)
    for kind in (keras.constraints.NonNeg, keras.constraints.UnitNorm):
        yield _dense(f"constraint {kind.__name__}", kind, "kernel_constraint", kind)
    own = keras.constraints.Constraint
    yield _dense("constraint of one's own", own, "kernel_constraint", _Small)


def _dense(name: str, covers: type, field: str, make: Any, *arguments: float) -> Row:
    plain = row(lambda: L.Dense(5, **{field: make(*arguments)}), vector, name=name)
    return dataclasses.replace(plain, covers=(covers,))


class _Largest(keras.regularizers.Regularizer):
    def __call__(self, weight: Any) -> Any:
        return 0.1 * keras.ops.max(keras.ops.square(weight))


class _Small(keras.constraints.Constraint):
    def __call__(self, weight: Any) -> Any:
        return keras.ops.clip(weight, -0.2, 0.2)


def _losses() -> Iterator[Row]:
    yield row(
        lambda: L.Dense(5, activity_regularizer=keras.regularizers.L2(0.01)),
        vector,
        name="activity_regularizer",
    )
    yield row(
        lambda: L.Dense(5, activity_regularizer=keras.regularizers.L2(0.01)),
        vector,
        name="activity_regularizer, called twice",
        call=lambda layer, x: layer(x) + layer(2 * x),
    )
    losses: dict[str, Callable[[Any], Any]] = {
        "add_loss of a mean": keras.ops.mean,
        "add_loss of a sum": keras.ops.sum,
        "add_loss of a loss per example": lambda x: keras.ops.mean(x, axis=-1),
        "add_loss of a maximum": keras.ops.max,
        "add_loss of a variance": lambda x: keras.ops.sum(keras.ops.var(x, axis=0)),
        "add_loss of zero": lambda x: 0 * keras.ops.sum(x),
    }
    for name, function in losses.items():
        yield _own(name, _Adds, function)


def _own(name: str, kind: Any, *arguments: Any, before: Any = vector, **fields: Any) -> Row:
    return row(lambda: kind(*arguments), before, name=name, **fields)


class _Adds(keras.layers.Layer):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * self.function(keras.ops.square(inputs)))
        return inputs


def _layers() -> Iterator[Row]:
    def twice(layer: Any, hidden: Any) -> Any:
        return layer(layer(hidden))

    yield row(lambda: L.Dense(6, "tanh"), vector, name="a layer called twice", call=twice)
    yield row(
        lambda: L.SpectralNormalization(L.Dense(6)),
        vector,
        name="SpectralNormalization, called twice",
        call=twice,
    )
    yield row(
        lambda: L.Dense(5, kernel_regularizer="l2", trainable=False), vector, name="a frozen layer"
    )
    frozen = "a frozen BatchNormalization"
    yield row(lambda: L.BatchNormalization(trainable=False), image, name=frozen)
    yield _own("a state that is a mean", _Mean)
    yield _own("a state that is read after it was assigned", _ReadAfter)
    yield _own("a state that is a maximum", _Largest_so_far)
    yield _own("a state that counts", _Counts)
    yield _own("a trained weight, assigned in call", _Assigns, lambda w, x: 0.9 * w)
    yield _own(
        "a trained weight, assigned a mean in call",
        _Assigns,
        lambda w, x: w + 0.1 * keras.ops.mean(x, axis=0),
    )
    yield _own("a weight that is not used", _Unused)
    yield row(lambda: L.Lambda(keras.ops.stop_gradient), vector, name="a gradient that is stopped")
    yield Row(name="no gradient at all", build=_without_gradient)
    yield row(
        lambda: L.Lambda(lambda x: x - keras.ops.mean(x, axis=0, keepdims=True)),
        vector,
        name="a mean over the batch",
    )
    yield _own("draws with a SeedGenerator", _Draws, draws="own")
    yield _own("draws without a seed", _DrawsUnseeded)
    yield _own("draws with tf.random", _DrawsTensorFlow, draws="own", unseeded=True)
    yield _own("assigns a tf.Variable", _AssignsTensorFlow)
    yield row(
        lambda: L.Dense(5, dtype="float32"), vector, name='a layer of dtype="float32"', single=True
    )


def _without_gradient() -> keras.Model:
    inputs = keras.Input((32, 32, 3))
    hidden = L.Dense(CLASSES)(L.Flatten()(L.AveragePooling2D(8)(inputs)))
    return keras.Model(inputs, L.Lambda(keras.ops.stop_gradient)(hidden))


class _Mean(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), trainable=False, name="mean")

    def call(self, inputs: Any, training: bool = False) -> Any:
        before = 1.0 * self.mean
        if training:
            self.mean.assign(0.9 * before + 0.1 * keras.ops.mean(inputs, axis=0))
        return inputs - before


class _ReadAfter(_Mean):
    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.sum(inputs))
        return inputs - self.mean


class _Largest_so_far(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.largest = self.add_weight(shape=(), initializer="ones", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        before = 1.0 * self.largest
        if training:
            self.largest.assign(keras.ops.maximum(before, keras.ops.max(inputs)))
        return inputs / before


class _Counts(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="calls"
        )

    def call(self, inputs: Any, training: bool = False) -> Any:
        before = 1 * self.calls
        if training:
            self.calls.assign(before + 1)
        return inputs * (1 + keras.ops.cast(before, inputs.dtype))


class _Assigns(keras.layers.Layer):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.scale.assign(self.function(self.scale, inputs))
        return inputs * self.scale


class _Unused(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.spare = self.add_weight(shape=(3, 3), name="kernel")

    def call(self, inputs: Any) -> Any:
        return keras.ops.tanh(inputs)


class _Draws(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seed = keras.random.SeedGenerator(5)

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.seed)


class _DrawsUnseeded(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs))


class _DrawsTensorFlow(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + tf.random.normal(tf.shape(inputs), dtype=inputs.dtype)


class _AssignsTensorFlow(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = tf.Variable(0.0, trainable=False)

    def call(self, inputs: Any) -> Any:
        self.calls.assign_add(1.0)
        return inputs


def _models() -> Iterator[Row]:
    def nested(inputs: Any) -> Any:
        inner = keras.Sequential([keras.Input((6,)), L.Dense(5), L.LayerNormalization()])
        return inner(vector(inputs))

    yield Row(name="a nested model", build=lambda: picture_model(nested))
    yield Row(name="keras.ops in a functional model", build=lambda: picture_model(_operations))
    yield Row(name="a subclassed model", build=lambda: Subclassed())
    yield Row(name="a list of models", build=_list)
    yield Row(name="a mask that reaches the logits", build=_masked)
    yield row(lambda: L.Dense(5), shaped(2, 3), name="a mask within", call=_masked_within)


def _operations(inputs: Any) -> Any:
    hidden = vector(inputs)
    return keras.ops.concatenate([keras.ops.sin(hidden), hidden**2], axis=-1)


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.pool = L.AveragePooling2D(8)
        self.flatten = L.Flatten()
        self.dense = L.Dense(5, activity_regularizer="l2")
        self.head = L.Dense(CLASSES)

    def call(self, images: Any) -> Any:
        return self.head(keras.ops.tanh(self.dense(self.flatten(self.pool(images)))))


def _list() -> Any:
    first = keras.Sequential([keras.Input((32, 32, 3)), L.Conv2D(3, 8, strides=8, name="conv")])
    return [first, keras.Sequential([L.Flatten(), L.Dense(CLASSES, name="head")])]


def _masked() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            L.AveragePooling2D(8),
            L.Flatten(),
            L.Masking(),
            L.Dense(CLASSES),
        ]
    )


def _masked_within(layer: Any, hidden: Any) -> Any:
    return L.GlobalAveragePooling1D()(layer(L.Masking(0.3)(hidden)))


def _training() -> Iterator[Row]:
    def compiled() -> keras.Model:
        model = picture_model(vector)
        model.compile("adam", "mse")
        return model

    yield Row(name="a compiled model", build=compiled)
    for name in ("train_step", "test_step", "compute_loss", "compute_metrics"):
        yield Row(name=f"a model with {name}", build=_overriding(name))


def _overriding(method: str) -> Callable[[], keras.Model]:
    def overridden(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(keras.Model, method)(self, *args, **kwargs)

    kind: Any = type("Own", (keras.Model,), {method: overridden})

    def build() -> keras.Model:
        plain = picture_model(vector)
        model: keras.Model = kind(plain.input, plain.output)
        return model

    return build
