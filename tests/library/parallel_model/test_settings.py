"""What ``parallelize`` refuses before it changes anything."""

import json

import keras
import pytest

import stagecraft as sc
from stagecraft.common.errors import SettingError, UserError
from stagecraft.parallel_model import lockstep
from stagecraft.parallel_model.placement import Placement


def model():
    given = keras.Input((4,))
    return keras.Model(given, keras.layers.Dense(3)(given))


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"strategy": "tpu"}, "parallel.strategy"),
        ({"strategy": "grid", "stages": 2, "timeline_step": 2}, "parallel.timeline_step"),
        ({"precision": "mixed_bfloat16"}, "parallel.precision"),
    ],
)
def test_settings_without_an_effect_are_refused(settings, setting):
    with pytest.raises(SettingError) as caught:
        sc.parallelize(model(), sc.Parallel(**settings))
    assert caught.value.setting == setting


@pytest.mark.parametrize("cuts", [["out"], ["two", "one"], ["one", "elsewhere"]])
def test_cuts_that_divide_nothing_are_refused(cuts):
    layers = [keras.layers.Dense(3, name=name) for name in ("one", "two", "three", "out")]
    cut = sc.Parallel(strategy="grid", stages=len(cuts) + 1, cuts=cuts)
    with pytest.raises(SettingError) as caught:
        Placement(keras.Sequential([keras.Input((4,)), *layers]), cut)
    assert caught.value.setting == "parallel.cuts"
    assert "out" not in caught.value.suggestion


@pytest.mark.parametrize("strategy", ["multi_worker_mirrored", "grid"])
def test_workers_connect_before_the_model(strategy, monkeypatch):
    workers = {"worker": ["localhost:1", "localhost:2"]}
    task = {"cluster": workers, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    built = model()
    with pytest.raises(UserError) as caught:
        sc.parallelize(built, sc.Parallel(strategy=strategy, workers=2))
    assert caught.value.setting == "parallel.workers"
    assert "stagecraft.connect" in caught.value.suggestion
    with pytest.raises(UserError) as early:
        sc.connect(sc.Parallel(strategy=strategy))
    assert (early.value.setting, early.value.value) == ("parallel.workers", 2)


def test_only_models_are_parallelized():
    with pytest.raises(SettingError) as caught:
        sc.parallelize(keras.layers.Dense(3), sc.Parallel())
    assert (caught.value.setting, caught.value.value) == ("model", "Dense")
    import tf_keras

    with pytest.raises(SettingError) as of_keras_2:
        sc.parallelize(tf_keras.Sequential([tf_keras.layers.Dense(3)]), sc.Parallel())
    assert of_keras_2.value.suggestion.startswith("import keras")


def test_callbacks_that_act_on_batches():
    def act(batch, logs):
        """Does nothing."""

    class Saves(keras.callbacks.ModelCheckpoint):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    acts = lockstep.acts_on_batches
    assert acts(keras.callbacks.LambdaCallback(on_train_batch_end=act))
    assert acts(Saves("a.keras"))
    assert acts(keras.callbacks.TerminateOnNaN())
    assert not acts(keras.callbacks.ModelCheckpoint("a.keras"))
    assert not acts(keras.callbacks.LambdaCallback(on_epoch_end=act))
    assert not acts(keras.callbacks.EarlyStopping())
