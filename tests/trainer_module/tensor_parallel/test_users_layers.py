"""Layers of users, which call divided layers in loops, branches and functions."""

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
from comparing import compare, ways

pytestmark = pytest.mark.slow

layers = keras.layers


@pytest.fixture(autouse=True)
def float64(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


class Calling(layers.Layer):
    """Calls an inner Dense in some way."""

    def __init__(self, way: Callable[[Any, Any], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.way = way
        self.inner = layers.Dense(60, activation="tanh", name="inner")

    def build(self, shape: Any) -> None:
        self.inner.build(shape)

    def call(self, inputs: Any) -> Any:
        return self.way(self.inner, inputs)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], 60)


@tf.custom_gradient
def doubled(inputs: Any) -> Any:
    return tf.identity(inputs), lambda upstream: 2 * upstream


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "branch": lambda inner, x: tf.cond(
        tf.reduce_sum(x) > 0, lambda: inner(x), lambda: inner(2 * x)
    ),
    "loop": lambda inner, x: tf.map_fn(
        lambda row: inner(row[tf.newaxis])[0], x, fn_output_signature=tf.float64
    ),
    "function": lambda inner, x: tf.function(lambda given: inner(given))(x),
    "its weights": lambda inner, x: inner(x) + tf.reduce_sum(tf.convert_to_tensor(inner.kernel)),
    "another gradient": lambda inner, x: doubled(inner(x)),
    "no gradient": lambda inner, x: tf.stop_gradient(inner(x)) + tf.nn.relu(inner(x)),
    "no batch": lambda inner, x: (
        inner(x) * tf.reduce_mean(inner(tf.ones([1, x.shape[-1]], x.dtype)))
    ),
    "integers": lambda inner, x: tf.cast(tf.cast(10 * inner(x), tf.int32), tf.float64) + inner(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_layer_that_calls_another_one(name):
    inputs = keras.Input((35,), dtype="float64")
    hidden = layers.Dense(50, name="first")(inputs)
    hidden = Calling(CALLS[name], name="calling")(hidden)
    shards = compare(keras.Model(inputs, layers.Dense(50, name="last")(hidden)), 2)
    assert ways(shards).keys() == {"first", "calling/inner", "last"}


class Cell(layers.Layer):
    """A cell of a recurrent layer with a pair of Dense."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.state_size = 40
        self.up = layers.Dense(60, activation="tanh", name="up")
        self.down = layers.Dense(40, name="down")

    def build(self, shape: Any) -> None:
        self.up.build((None, shape[-1] + 40))
        self.down.build((None, 60))

    def call(self, inputs: Any, states: Any) -> Any:
        outputs = self.down(self.up(tf.concat([inputs, states[0]], -1)))
        return outputs, [outputs]


def test_the_cell_of_a_recurrent_layer():
    inputs = keras.Input((5, 35), dtype="float64")
    shards = compare(keras.Model(inputs, layers.RNN(Cell(name="cell"), name="rnn")(inputs)), 2)
    assert ways(shards) == {"rnn/cell/up": "columns", "rnn/cell/down": "rows"}


class Tripled(layers.Dense):
    """Computes something else."""

    def call(self, inputs: Any) -> Any:
        return 3 * super().call(inputs)


class Noted(layers.Dense):
    """Computes the same, and has no configuration of its argument."""

    def __init__(self, units: int, note: object, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.note = note


def test_subclasses():
    inputs = keras.Input((40,), dtype="float64")
    hidden = Tripled(50, name="tripled")(inputs)
    hidden = Noted(55, object(), activation=lambda x: x**2, name="noted")(hidden)
    hidden = layers.Dense(20, name="last")(layers.LayerNormalization()(hidden))
    shards = compare(keras.Model(inputs, hidden), 2)
    assert ways(shards) == {"noted": "columns", "last": "columns"}


class Standardized(layers.Conv2D):
    """Overrides what the convolution's ``call`` calls (Qiao et al. 2019)."""

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        centred = kernel - keras.ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        return super().convolution_op(inputs, centred)


class Doubled(layers.Dense):
    """Overrides a property that ``call`` reads."""

    @property
    def kernel(self) -> Any:
        return 2 * self._kernel


class Steeper(layers.MultiHeadAttention):
    """Overrides the method that Keras documents for that."""

    def _compute_attention(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._compute_attention(3 * query, *args, **kwargs)


class SoftmaxOfSum(layers.Add):
    """Needs all channels."""

    def _merge_function(self, inputs: Any) -> Any:
        return keras.ops.softmax(super()._merge_function(inputs))


class Attending(layers.Layer):
    """Self-attention."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = Steeper(4, 10, name="inner")

    def build(self, shape: Any) -> None:
        self.inner.build(shape, shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs, inputs)


OVERRIDING: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], set[str]]] = {
    "a convolution": ((6, 6, 24), lambda x: Standardized(40, 3, name="own")(x), set()),
    "a property": ((6, 24), lambda x: Doubled(50, name="own")(x), set()),
    "a merge": ((6, 24), lambda x: SoftmaxOfSum(name="own")([x, layers.ReLU()(x)]), set()),
    "attention": (
        (6, 24),
        lambda x: Attending(name="own")(x),
        {f"own/inner/{name}" for name in ("query", "key", "value", "attention_output")},
    ),
}


@pytest.mark.parametrize("name", OVERRIDING)
def test_a_subclass_that_overrides_what_its_call_uses_stays_whole(name):
    shape, own, inside = OVERRIDING[name]
    inputs = keras.Input(shape, dtype="float64")
    hidden = own(layers.Dense(48, name="first")(inputs))
    shards = compare(keras.Model(inputs, layers.Dense(900, name="last")(hidden)), 2)
    assert ways(shards).keys() == {"first", "last", *inside}


def test_a_layer_whose_call_is_replaced_stays_whole():
    own = layers.Dense(44, name="own")
    inputs = keras.Input((40,), dtype="float64")
    network = keras.Model(inputs, layers.Dense(90, name="last")(own(inputs)))
    before = own.call
    own.call = lambda inputs, training=None: 2 * before(inputs)
    assert ways(compare(network, 2)).keys() == {"last"}


def test_a_model_in_a_model_that_is_called_twice():
    inner = keras.Sequential(
        [
            keras.Input((40,)),
            layers.Dense(50, activation="relu", name="up"),
            layers.Dense(40, name="down"),
        ],
        name="inner",
    )
    inputs = keras.Input((40,), dtype="float64")
    outputs = inner(layers.LayerNormalization()(inner(inputs)))
    shards = compare(keras.Model(inputs, outputs), 2)
    assert ways(shards) == {"inner/up": "columns", "inner/down": "rows"}


def test_several_inputs_and_outputs():
    one, two = keras.Input((40,), dtype="float64"), keras.Input((30,), dtype="float64")
    both = layers.Concatenate()([layers.Dense(40)(one), layers.Dense(40)(two)])
    outputs = {"x": layers.Dense(50)(both), "y": layers.Dense(50, activation="softmax")(both)}
    shards = compare(keras.Model([one, two], outputs), 3)
    assert [*ways(shards).values()] == ["columns"] * 4


class Borrowing(layers.Dense):
    """Takes the kernel of another layer."""

    def __init__(self, source: Any, **kwargs: Any) -> None:
        super().__init__(source.units, use_bias=False, **kwargs)
        self.source = source

    def build(self, shape: Any) -> None:
        self._kernel, self.bias = self.source._kernel, None
        self.built = True


def test_a_weight_of_two_layers():
    first = layers.Dense(40, name="first")
    inputs = keras.Input((40,), dtype="float64")
    outputs = Borrowing(first, name="second")(first(inputs))  # by columns there, by rows here
    shards = compare(keras.Model(inputs, outputs), 2)
    assert ways(shards) == {"first": "columns"}
    assert shards.reasons.keys() == {"second"}
