"""Callbacks, history, and checkpoints of ``fit``."""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.fitting import job
from stagecraft.fitting.task import GivenTask
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.data.tasks.metric import Mean
from stagecraft.trainer_module.data.tasks.task import Spec
from stagecraft.trainer_module.planning.search import of_model

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
    assert stopping.mode == "auto"


def test_a_callback_serves_twice():
    stopping = keras.callbacks.EarlyStopping("mae", patience=9, min_delta=0.25)
    for _ in range(2):
        sc.fit(build(), X, Y, loss="mse", metrics=["mae"], callbacks=stopping, verbose=0)
    assert stopping.min_delta == -0.25  # Keras's sign of "less is better"


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


def test_short_batches_within_an_epoch_are_told(caplog):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat(2)
    model, twin = build(), build()
    twin.set_weights(model.get_weights())
    sc.fit(model, dataset, loss="mse", optimizer="sgd", verbose=0)
    assert "dataset.unbatch()" in caplog.text
    twin.compile("sgd", "mse")
    twin.fit(dataset, verbose=0)
    for one, two in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-7)


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
    assert history.examples_per_second > 0


def test_a_metric_of_ones_own():
    own = Mean("above", lambda outputs, targets: tf.cast(outputs[:, 0] > targets[:, 0], tf.float32))
    model = build()
    found = sc.fit(
        model, X, Y, loss="mse", metrics=[own], verbose=0, validation_data=(X, Y)
    ).history  # fmt: skip
    assert found["val_above"] == [np.mean(np.asarray(model(X))[:, 0] > Y[:, 0])]


def test_it_resumes_as_if_it_had_not_stopped(tmp_path):
    arguments: dict[str, Any] = {"loss": "mse", "verbose": 0, "batch_size": 4, "epochs": 4}
    arguments["validation_data"] = (X, Y)

    class Stops:
        def on_epoch_end(self, epoch: int, logs: Any) -> None:
            if epoch == 2:
                raise KeyboardInterrupt

    whole, model = build(), build()
    model.set_weights(whole.get_weights())
    start = model.get_weights()
    expected = sc.fit(whole, X, Y, **arguments)
    folder = str(tmp_path / "kept")
    with pytest.raises(KeyboardInterrupt):
        sc.fit(model, X, Y, checkpoint_dir=folder, callbacks=[Stops()], **arguments)
    assert sorted(pathlib.Path(folder).glob("checkpoints/[0-9]*"))
    model.set_weights(start)
    for _ in range(2):  # the second one finds a finished training
        history = sc.fit(model, X, Y, checkpoint_dir=folder, **arguments)
        for one, two in zip(model.get_weights(), whole.get_weights(), strict=True):
            np.testing.assert_array_equal(one, two)
        assert history.epoch == [0, 1, 2, 3]
        for name, values in expected.history.items():  # sums of losses in float32
            assert history.history[name] == pytest.approx(values, rel=2**-21)

    def files() -> dict[str, bytes]:
        found = pathlib.Path(folder).glob("checkpoints/[0-9]*/*")
        return {str(each): each.read_bytes() for each in found}

    kept = files()
    for other in ({"optimizer": "sgd"}, {"optimizer": "sgd", "epochs": 9}, {"epochs": 2}):
        with pytest.raises(resume.OtherTrainingError) as caught:
            sc.fit(model, X, Y, checkpoint_dir=folder, **{**arguments, **other})
        assert caught.value.finished and caught.value.file.startswith(folder)
        assert "checkpoint_dir" in str(caught.value)
        assert files() == kept
    stopped = str(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        sc.fit(model, X, Y, checkpoint_dir=stopped, callbacks=[Stops()], **arguments)
    with pytest.raises(resume.OtherTrainingError) as caught:
        sc.fit(model, X, Y, checkpoint_dir=stopped, **{**arguments, "optimizer": "sgd"})
    assert not caught.value.finished


def test_a_resumed_training_keeps_the_topology_that_was_chosen(tmp_path, monkeypatch):
    arguments: dict[str, Any] = {"loss": "mse", "verbose": 0, "batch_size": 4}
    folder = str(tmp_path / "kept")

    def same() -> keras.Model:
        keras.utils.clear_session()  # else its layers have other names
        return build()

    # As if an earlier search had chosen it.
    sc.fit(same(), X, Y, checkpoint_dir=folder, parallel=sc.Parallel(accumulate=2), **arguments)
    again: dict[str, Any] = {"optimizer": "adam", "batch_size": 4, "steps": 5, "seed": 0}
    again |= {"parallel": sc.Parallel(strategy="auto"), "checkpoint_dir": folder}
    task = GivenTask(Spec((4,)), Spec((2,)), loss="mse")
    with monkeypatch.context() as without:
        without.setattr(of_model, "search", lambda *given, **more: pytest.fail("searched"))
        made = job.make(same(), task, **again)
        made.release()
        assert (made.settings.parallel.strategy, made.settings.parallel.accumulate) == (
            "one_device",
            2,
        )
        history = sc.fit(
            same(),
            X,
            Y,
            checkpoint_dir=folder,
            epochs=2,
            parallel=sc.Parallel(strategy="auto"),
            **arguments,
        )
        assert history.topology.strategy == "one_device"
    new = {**again, "checkpoint_dir": str(tmp_path / "new")}
    for model, given in ((same(), new), (build(), again)):  # build: another one
        made = job.make(model, task, **given)
        made.release()
        assert made.settings.parallel.accumulate == 1
    assert not (tmp_path / "new").exists()
