"""Callbacks, history, and checkpoints of ``fit``."""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import numpy as np
import pytest

import stagecraft as sc

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("as_before")


def build() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


class Notes(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append("begin")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append({**logs, "weights": self.model.get_weights()[0].sum()})

    def on_train_end(self, logs: Any = None) -> None:
        self.calls.append("end")


def test_callbacks_follow_epochs():
    notes, model = Notes(), build()
    history = sc.fit(model, X, Y, loss="mse", epochs=2, callbacks=[notes], verbose=0)
    begin, first, logs, second, last, end = notes.calls
    assert (begin, first, second, end) == ("begin", 0, 1, "end")
    assert (logs["loss"], last["loss"]) == tuple(history.history["loss"])
    assert last["weights"] == pytest.approx(model.get_weights()[0].sum())
    assert notes.params["epochs"] == 2


def test_early_stopping_restores_the_best_weights():
    model = build()
    stopping = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
    optimizer = keras.optimizers.SGD(50.0, global_clipnorm=10.0)  # the loss rises
    history = sc.fit(
        model, X, Y, loss="mse", optimizer=optimizer, epochs=9, callbacks=[stopping], verbose=0
    )
    assert len(history.epoch) < 9
    assert history.history["loss"][-1] > history.history["loss"][-2]
    best = list(stopping.best_weights)
    assert all((one == two).all() for one, two in zip(model.get_weights(), best, strict=True))


def test_early_stopping_knows_which_metrics_rise():
    y = (X[:, 0] > 0).astype(np.int64)
    stopping = keras.callbacks.EarlyStopping("val_accuracy", patience=1)
    history = sc.fit(
        build(),
        X,
        y,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(1e-9),
        metrics=["accuracy"],
        epochs=5,
        validation_data=(X, y),
        callbacks=stopping,
        verbose=0,
    )
    assert len(history.epoch) == 2 and stopping.monitor_op is keras.ops.greater


@pytest.mark.parametrize("steps", [1, 2])
def test_validation_steps_of_arrays(steps):
    model = build()
    found = sc.fit(
        model,
        X,
        Y,
        loss="mse",
        epochs=3,
        validation_data=(X, Y),
        validation_steps=steps,
        validation_batch_size=4,
        validation_freq=3,
        verbose=0,
    )
    errors = np.asarray(model(X)) - Y
    expected = np.mean(errors[: 4 * steps] ** 2)
    assert found.history["val_loss"] == [pytest.approx(expected, rel=1e-5)]


def test_validations_are_as_rare_as_in_keras():
    found = sc.fit(
        build(), X, Y, loss="mse", epochs=3, validation_data=(X, Y), validation_freq=2, verbose=0
    )
    assert len(found.history["val_loss"]) == 1


def test_a_callback_adds_to_the_history():
    class Adds(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["epoch"] = epoch

    found = sc.fit(build(), X, Y, loss="mse", epochs=2, callbacks=[Adds()], verbose=0)
    assert found.history["epoch"] == [0, 1]


def test_history_is_shown_and_drawn(capsys):
    history = sc.fit(
        build(), X, Y, loss="mse", metrics=["mae"], epochs=4, validation_data=(X, Y),
        validation_freq=2, batch_size=8,
    )  # fmt: skip
    assert "Epoch 4/4" in capsys.readouterr().out
    assert [len(values) for values in history.history.values()] == [4, 4, 2, 2]
    assert "0.3" in repr(history) or "epoch" in repr(history)
    left, right = history.plot().axes
    assert (left.get_title(), right.get_title()) == ("loss", "mae")
    assert [len(line.get_xdata()) for line in left.lines] == [4, 2]
    assert list(left.lines[1].get_xdata()) == [2, 4]


class Stopped(Exception):
    pass


class Stop(keras.callbacks.Callback):
    """Ends a training in the middle of its second epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == 4:
            raise Stopped


def with_dropout() -> keras.Model:
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5, seed=3)]
    return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(2)])


def test_it_resumes_as_if_it_had_not_stopped(tmp_path):
    arguments = {"loss": "mse", "batch_size": 8, "epochs": 4, "shuffle": False, "verbose": 0}
    start = with_dropout().get_weights()

    def run(folder: pathlib.Path, *callbacks: Any, **more: Any) -> sc.History:
        model = with_dropout()
        model.set_weights(start)
        optimizer = keras.optimizers.Adam(0.01)
        return sc.fit(
            model,
            X,
            Y,
            optimizer=optimizer,
            callbacks=[*callbacks],
            checkpoint_dir=str(folder),
            **arguments | more,
        )

    whole = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "parts", Stop())
    resumed = run(tmp_path / "parts")
    assert resumed.history == whole.history and resumed.epoch == whole.epoch == [0, 1, 2, 3]
    for one, two in zip(resumed.model.variables, whole.model.variables, strict=True):
        assert np.array_equal(one, two)
    again = run(tmp_path / "parts")  # it has finished
    assert again.history == whole.history
    for one, two in zip(again.model.variables, whole.model.variables, strict=True):
        assert np.array_equal(one, two)
    assert len(run(tmp_path / "parts", epochs=5).epoch) == 5
    assert len(again.model.fit(X, Y, verbose=0).epoch) == 1
    assert [each.name for each in (tmp_path / "parts").iterdir()] == ["training.npz"]


def test_callbacks_and_metrics_of_a_resumed_training(tmp_path):
    """What callbacks set at the end of an epoch counts; a metric may be several numbers."""

    def run(folder: str, epochs: int, *more: Any) -> sc.History:
        keras.utils.set_random_seed(1)
        slower = keras.callbacks.ReduceLROnPlateau("loss", mode="max", patience=0)
        return sc.fit(
            build(),
            X,
            np.eye(2)[(X[:, 0] > 0).astype(int)],
            loss="mse",
            optimizer=keras.optimizers.SGD(0.1),
            metrics=[keras.metrics.F1Score(), "mae"],
            shuffle=False,
            epochs=epochs,
            callbacks=[slower, *more],
            verbose=0,
            checkpoint_dir=str(tmp_path / folder),
        )

    whole = run("whole", 4)
    with pytest.raises(Stopped):
        run("parts", 4, StopLater())
    resumed = run("parts", 4)
    assert resumed.history.keys() == whole.history.keys() >= {"learning_rate", "f1_score"}
    assert resumed.history["loss"] == whole.history["loss"]
    assert len(whole.history["f1_score"][0]) == 2 and "mae" in repr(whole)
    assert [axes.get_title() for axes in whole.plot().axes] == ["loss", "mae", "learning_rate"]


class StopLater(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise Stopped


def test_a_training_that_stopped_early_is_not_repeated(tmp_path):
    def run(**more: Any) -> sc.History:
        stopping = keras.callbacks.EarlyStopping(
            "loss", mode="max", patience=1, restore_best_weights=True
        )
        model = build()
        return sc.fit(
            model,
            X,
            Y,
            loss="mse",
            optimizer="sgd",
            callbacks=stopping,
            verbose=0,
            checkpoint_dir=str(tmp_path),
            **{"epochs": 9, **more},
        )

    first, second = run(), run()
    assert len(first.epoch) == 2 and second.history == first.history
    for one, two in zip(first.model.variables, second.model.variables, strict=True):
        assert np.array_equal(one, two)  # the best weights
    assert len(run(epochs=10).epoch) > 2


def test_numbers_of_epochs_go_on(tmp_path):
    arguments = {"loss": "mse", "optimizer": "sgd", "verbose": 0, "checkpoint_dir": str(tmp_path)}
    for _ in range(2):
        found = sc.fit(build(), X, Y, initial_epoch=5, epochs=7, **arguments)
        assert found.epoch == [5, 6]


def test_a_folder_of_another_training_is_refused(tmp_path):
    folder = str(tmp_path)
    sc.fit(build(), X, Y, loss="mse", optimizer="adam", verbose=0, checkpoint_dir=folder)
    curved = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "tanh")])
    frozen = build()
    frozen.layers[0].trainable = False
    for model, other in (
        (build(), {"loss": "mae", "optimizer": "adam"}),
        (build(), {"loss": "mse", "optimizer": keras.optimizers.Adam(beta_1=0.5)}),
        (build(), {"loss": "mse", "optimizer": keras.optimizers.Adam(0.5)}),
        (build(), {"loss": "mse", "optimizer": "sgd"}),
        (curved, {"loss": "mse", "optimizer": "adam"}),
        (frozen, {"loss": "mse", "optimizer": "adam"}),
    ):
        with pytest.raises(sc.SettingError) as caught:
            sc.fit(model, X, Y, verbose=0, checkpoint_dir=folder, **other)
        assert (caught.value.setting, caught.value.value) == ("checkpoint_dir", folder)
    (tmp_path / "training.npz").write_bytes(b"PK broken")
    with pytest.raises(sc.UserError) as broken:
        sc.fit(build(), X, Y, loss="mse", optimizer="adam", verbose=0, checkpoint_dir=folder)
    assert broken.value.file == str(tmp_path / "training.npz")


def test_a_checkpoint_dir_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(build(), X, Y, loss="mse", checkpoint_dir=str(tmp_path / "file" / "inner"))
    assert caught.value.setting == "checkpoint_dir"
