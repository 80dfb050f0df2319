"""What ``fit`` refuses since it would have no effect, or since it is no data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)
BOTH = {"a": Y, "b": Y[:, :1]}


pytestmark = pytest.mark.usefixtures("as_before")


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
    for argument in ("loss", "metrics"):
        error = refused(build(), **{argument: {"q": "mse", "r": "mae"}})
        assert (error.setting, error.value) == (argument, "q and r")


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


class Rows(keras.utils.PyDataset):
    """Batches of Keras's own kind."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return X, Y


def unknown_rank() -> tf.data.Dataset:
    kinds = (tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.float32))
    return tf.data.Dataset.from_generator(lambda: iter([(X, Y)]), output_signature=kinds)


def single(x: Any, y: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y))


DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "a generator": ("x", {"x": ((X, Y) for _ in range(2)), "y": None}),
    "a PyDataset": ("x", {"x": Rows(), "y": None}),
    "nothing": ("x", {"x": None, "y": None}),
    "lists of different lengths": ("y", {"y": [[1.0], [1.0, 2.0]]}),
    "y of another kind": ("y", {"y": object()}),
    "no examples": ("x", {"x": X[:0]}),
    "an empty dictionary": ("x", {"x": {}}),
    "weights of another length": ("sample_weight", {"sample_weight": np.ones(3)}),
    "elements of unknown rank": ("x", {"x": unknown_rank(), "y": None}),
    "single examples": ("x", {"x": single(X, Y), "y": None}),
    "single examples like their targets": ("x", {"x": single(X, X), "y": None}),
    "validation without targets": ("validation_data", {"validation_data": X}),
    "validation without examples": ("validation_data", {"validation_data": (X[:0], Y[:0])}),
    "validation of other lengths": ("validation_data", {"validation_data": (X, Y[:3])}),
    "validation of single examples": ("validation_data", {"validation_data": single(X, X)}),
}


@pytest.mark.parametrize("name", DATA)
def test_data_that_does_not_fit(name, messages):
    setting, changes = DATA[name]
    error = refused(build(), **changes)
    assert error.setting == setting
    if "single" in name:
        assert error.suggestion == "dataset.batch(32)"
    messages.check(str(error))


def test_a_batch_of_one_number_is_a_batch():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    batches = single(X[:3, 0], Y[:3, 0]).batch(1, drop_remainder=True)
    assert sc.fit(model, batches, loss="mse", metrics=None, verbose=0).params["steps"] == 3


def test_a_checkpoint_dir_that_is_a_file(tmp_path):
    path = tmp_path / "kept"
    path.touch()
    for given in (str(path), path, str(path / "below")):
        error = refused(build(), checkpoint_dir=given)
        assert error.setting == "checkpoint_dir"


def test_inputs_that_are_not_finite():
    error = refused(build(), x=X * np.nan)
    assert "preprocessing_fn" not in str(error) and "Check x" in str(error)


@pytest.mark.parametrize(
    ("argument", "given", "use"),
    [
        ("loss", "mean_sqared_error", "mean_squared_error"),
        ("metrics", ["maee"], "mae"),
        ("metrics", ["acuracy"], "accuracy"),
        ("optimizer", "adamm", "adam"),
        ("optimizer", "rmsprob", "rmsprop"),
    ],
)
def test_names_that_are_like_one_of_keras(argument, given, use, messages):
    error = refused(build(), **{argument: given})
    assert (error.setting, error.suggestion) == (argument, use)


@pytest.mark.parametrize("devices", [4, "4xA100", ["GPU:0"]])
def test_devices_of_a_plan(devices, messages):
    with pytest.raises(sc.UserError) as caught:
        sc.plan(build(), sc.Parallel(), devices=devices)
    assert caught.value.setting == "devices"
    messages.check(str(caught.value))
