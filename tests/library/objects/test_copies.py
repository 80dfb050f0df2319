"""Copies compute what the model computes, whatever its ``get_config`` says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from stagecraft.objects import model

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


class Lost(keras.layers.Layer):
    """Its configuration lacks what the constructor takes."""

    def __init__(self, activation: Any = None, regularizer: Any = None, scale: Any = 1.0, **rest):
        super().__init__(**rest)
        self.activation = keras.activations.get(activation)
        self.regularizer = keras.regularizers.get(regularizer)
        self._scale = scale

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 2), regularizer=self.regularizer)

    def call(self, x):
        return self.activation(x @ self.kernel) * self._scale

    def get_config(self):
        return super().get_config()


class Training(keras.layers.Layer):
    """Like ``Lost``, of what it does in a training alone."""

    def __init__(self, momentum: float = 0.9, rate: float = 0.5, **rest):
        super().__init__(**rest)
        self._momentum, self._rate = momentum, rate
        self.seeds = keras.random.SeedGenerator()
        self.mean = self.add_weight(shape=(), trainable=False)

    def call(self, x, training=None):
        if not training:
            return x
        share = 1 - self._momentum
        self.mean.assign(self._momentum * self.mean + share * keras.ops.mean(x))
        return keras.random.dropout(x, self._rate, seed=self.seeds)

    def get_config(self):
        return super().get_config()


class Below(keras.constraints.Constraint):
    def __init__(self, limit: float = 1.0):
        self.limit = limit

    def __call__(self, w):
        return keras.ops.minimum(w, self.limit)


class Gain(keras.Model):
    def __init__(self):
        super().__init__()
        self.gain, self.dense = 1.0, keras.layers.Dense(2)

    def call(self, x):
        return self.gain * self.dense(x)


class Loose(Gain):
    def __init__(self, **arguments):
        super().__init__()
        self.gain = arguments.pop("gain", 1.0)


class Late(keras.layers.Layer):
    """Makes weights in its first call."""

    def __init__(self, **rest):
        super().__init__(**rest)
        self.inner = keras.layers.Dense(3)
        self.built = True

    def compute_output_shape(self, shape):
        return (*shape[:-1], 3)

    def call(self, x):
        return self.inner(x)


def twice(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function)
    def wrapped(x: Any) -> Any:
        return 2 * function(x)

    return wrapped


class Around(keras.Model):
    """A model of its own around a model."""

    def __init__(self, base: keras.Model):
        super().__init__()
        self.base, self.top = base, keras.layers.Dense(1)

    def call(self, x):
        return self.top(self.base(x))

    def get_config(self):
        return {"base": keras.saving.serialize_keras_object(self.base)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["base"]))


class Plain(keras.Sequential):
    """Inherits all of its methods."""


def shift(by: float) -> type:
    """A class whose name others have."""

    class Shift(keras.layers.Layer):
        def call(self, x):
            return x + by

    return Shift


def _sequential(*layers: keras.layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input([4]), *layers])


def _changed(made: keras.Model, change: Callable[[Any], None]) -> keras.Model:
    made(X)
    change(made)
    return made


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda made: setattr(made.weights[0], name, value)


def _dense(activation: Callable[[Any], Any]) -> keras.Model:
    return _sequential(keras.layers.Dense(2, activation=activation))


LOST = {
    "an activation": lambda: _sequential(Lost("tanh")),
    "a regularizer": lambda: _sequential(Lost(regularizer="l2")),
    "a private attribute": lambda: _sequential(Lost(scale=np.float32(2))),
    "a momentum": lambda: _sequential(Training(momentum=0.5)),
    "a dropout": lambda: _sequential(Training(rate=0.1)),
    "a constraint without get_config": lambda: _sequential(
        keras.layers.Dense(2, kernel_constraint=Below(0.5))
    ),
    "a regularizer of a weight": lambda: _changed(
        _sequential(keras.layers.Dense(2)), _set("regularizer", keras.regularizers.L2(0.5))
    ),
    "a constraint of a weight": lambda: _changed(
        _sequential(keras.layers.Dense(2)), _set("constraint", Below())
    ),
    "an attribute that is set later": lambda: _changed(
        Gain(), lambda made: setattr(made, "gain", 2.0)
    ),
    "an argument of any name": lambda: Loose(gain=2.0),
    "weights of the first call": lambda: _sequential(Late()),
    "a function around one of Keras's": lambda: _dense(twice(keras.activations.relu)),
    "an operation that has the name of an activation": lambda: _dense(keras.ops.gelu),
    "another operation": lambda: _dense(keras.ops.square),
    "a model around a model": lambda: _changed(
        Around(_sequential(keras.layers.Dense(3))), lambda made: None
    ),
    "a class without members": lambda: Plain([keras.Input([4]), keras.layers.Dense(2)]),
    "two classes of one name": lambda: _sequential(shift(1.0)(), shift(2.0)()),
    "an output padding": lambda: _sequential(
        keras.layers.Reshape([4, 1]),
        keras.layers.Conv1DTranspose(2, 3, strides=2, output_padding=1),
        keras.layers.GlobalMaxPooling1D(),
    ),
    "a frozen weight": lambda: _changed(
        _sequential(keras.layers.Dense(3), keras.layers.BatchNormalization()),
        _set("trainable", False),
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_copy_has_what_a_configuration_loses(name):
    given = LOST[name]()
    made = model.builder(given)()
    assert np.array_equal(made(X), given(X))
    for one, two in zip(made.weights, given.weights, strict=True):
        kinds = [
            (each.path, each.trainable, type(each.regularizer), type(each.constraint))
            for each in (one, two)
        ]
        assert kinds[0] == kinds[1]
    np.testing.assert_array_equal(made.losses, given.losses)
    trained = [each(X, training=True) for each in (made, given)]
    assert np.array_equal(*trained)  # the same state of the random numbers, too
    for one, two in zip(made.variables, given.variables, strict=True):
        assert np.array_equal(one, two)


class Counter(keras.layers.Layer):
    """Counts its calls; ``draws`` makes each result another one."""

    def __init__(self, draws: bool = False, **rest):
        super().__init__(**rest)
        self.draws = draws
        self.count = self.add_weight(shape=(), trainable=False, initializer="zeros")

    def call(self, x):
        self.count.assign_add(1.0)
        return x * (keras.random.uniform([]) if self.draws else 1.0)


@pytest.mark.parametrize("draws", [False, True])
def test_state_stays_and_random_outputs_are_not_compared(draws):
    given = _sequential(Counter(draws), keras.layers.Dense(2))
    made = model.builder(given)()
    assert [float(each.layers[0].count) for each in (given, made)] == [0.0, 0.0]
