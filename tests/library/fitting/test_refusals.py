"""What ``fit`` refuses since it would have no effect, or since it is no data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

import stagecraft as sc
from stagecraft import process_state

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)
BOTH = {"a": Y, "b": Y[:, :1]}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with process_state.restored():
        yield


def build() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def two() -> keras.Model:
    """The layers have other names than the outputs."""
    inputs = keras.Input((4,))
    return keras.Model(
        inputs, {"a": keras.layers.Dense(2)(inputs), "b": keras.layers.Dense(1)(inputs)}
    )


def refused(model: Any, x: Any = X, y: Any = Y, **more: Any) -> sc.UserError:
    with pytest.raises(sc.UserError) as caught:
        sc.fit(model, x, y, **({"loss": "mse", "verbose": 0} | more))
    return caught.value


def test_parts_for_no_output(messages):
    for model in (two(), two):
        for argument, given, value, use in (
            ("loss", {"a": "mse", "c": "mse"}, "c", "a or b"),
            (
                "loss",
                ["mse"],
                "1 parts",
                "a dictionary by output, or a list with one part for each",
            ),
            ("metrics", {"az": "mae"}, "az", "a"),
        ):
            error = refused(model, y=BOTH, **{argument: given})
            assert (error.setting, error.value) == (argument, value)
            assert error.suggestion == use
            messages.check(str(error))
    error = refused(two, y=BOTH, metrics=["mae", "mse"])
    assert (error.setting, error.suggestion) == ("metrics", "metrics={'a': […]}")
    inputs = keras.Input((4,))
    named = keras.Model(inputs, keras.layers.Dense(2, name="d")(inputs))
    assert refused(named, loss={"e": "mse"}).suggestion == "d"


@pytest.mark.parametrize("model", [two, two()], ids=["function", "model"])
def test_metrics_of_outputs_by_key(model):
    metrics = {"b": ["mae"], "a": ["mse"]}
    found = sc.fit(
        model, X, BOTH, loss="mse", metrics=metrics, verbose=0, validation_data=(X, BOTH)
    )
    errors = {key: np.asarray(value) - BOTH[key] for key, value in found.model(X).items()}
    assert found.history["val_b_mae"] == [pytest.approx(np.abs(errors["b"]).mean(), rel=1e-5)]
    assert found.history["val_a_mse"] == [pytest.approx((errors["a"] ** 2).mean(), rel=1e-5)]


@pytest.mark.parametrize("method", ["on_epoch_begin", "on_epoch_end"])
def test_a_callback_that_sets_the_learning_rate(method):
    model = build()
    model.compile("sgd", "mse")

    class Decay(keras.callbacks.Callback):
        pass

    setattr(
        Decay,
        method,
        lambda self, epoch, logs=None: setattr(self.model.optimizer, "learning_rate", 1e-4),
    )
    error = refused(model, callbacks=[Decay()])
    assert (error.setting, error.value) == ("callbacks", "Decay")
    assert "LearningRateSchedule" in error.suggestion
