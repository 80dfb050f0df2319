"""What ``fit`` refuses."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.fitting import job
from stagecraft.fitting.task import GivenTask
from stagecraft.trainer_module.data.tasks.task import Spec

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("as_before")


def build() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def normalized() -> keras.Model:
    layers = [keras.layers.Dense(2), keras.layers.BatchNormalization(name="norm")]
    return keras.Sequential([keras.Input((4,)), *layers])


class Unserializable(keras.Model):
    def __init__(self, layer: Any):
        super().__init__()
        self.layer = layer

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)

    def get_config(self) -> dict[str, Any]:
        raise TypeError("no configuration")


class Tripled(keras.losses.MeanSquaredError):
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return 3 * super().__call__(y_true, y_pred, sample_weight)


def mean_of_batch(y_true: Any, y_pred: Any) -> Any:
    return tf.reduce_mean(tf.abs(y_true - y_pred))


class Batches(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts."""


class Halves(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.set_weights([weight / 2 for weight in self.model.get_weights()])


class StopsEarly(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = True


class Rates(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["rate"] = self.model.optimizer.learning_rate


class Scaled(keras.optimizers.SGD):
    """Its configuration lacks an argument."""

    def __init__(self, learning_rate: float = 0.1, scale: float = 1.0, **arguments: Any):
        super().__init__(learning_rate, **arguments)
        self.scale = scale


def excluded() -> keras.optimizers.Optimizer:
    optimizer = keras.optimizers.AdamW(0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


class Wide(keras.Model):
    """Keras would build it again with the default width."""

    def __init__(self, width: int = 3):
        super().__init__()
        self.layer = keras.layers.Dense(width)

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "a model that is none": ("model", {"model": "resnet"}),
    "a class": ("model", {"model": Unserializable}),
    "a model without configuration": (
        "model",
        {"_model": lambda: Unserializable(keras.layers.Dense(2))},
    ),
    "a model whose arguments are lost": ("model", {"_model": lambda: Wide(2)}),
    "an unknown loss": ("loss", {"loss": "mean_sq"}),
    "a loss of the batch": ("loss", {"loss": lambda y, p: tf.reduce_mean(tf.square(y - p))}),
    "a sum": ("loss", {"loss": keras.losses.MeanSquaredError(reduction="sum")}),
    "a loss that does not fit": ("loss", {"loss": "sparse_categorical_crossentropy"}),
    "an unknown metric": ("metrics", {"metrics": ["acuracy"]}),
    "a metric that is no mean": ("metrics", {"metrics": [keras.metrics.AUC()]}),
    "metrics that are no list": ("metrics", {"metrics": "mae"}),
    "an unknown optimizer": ("optimizer", {"optimizer": "adamm"}),
    "clipnorm": ("optimizer", {"optimizer": keras.optimizers.SGD(0.1, clipnorm=1.0)}),
    "EMA": ("optimizer", {"optimizer": keras.optimizers.SGD(0.1, use_ema=True)}),
    "exclusions": ("optimizer", {"optimizer": excluded()}),
    "two metrics of a name": ("metrics", {"metrics": ["mae", "mae"]}),
    "inputs of another shape": ("model", {"x": X[:, :3]}),
    "a function that returns no model": ("model", {"model": lambda: {}}),
    "a loss that is not finite": ("", {"x": X * np.nan}),
    "a callback of batches": ("callbacks", {"callbacks": [Batches()]}),
    "a callback of rates": ("callbacks", {"callbacks": [keras.callbacks.ReduceLROnPlateau()]}),
    "no callback": ("callbacks", {"callbacks": [object()]}),
    "no targets": ("y", {"y": None}),
    "arrays of other lengths": ("y", {"y": Y[:3]}),
    "a loss that ignores targets": (
        "loss",
        {
            "loss": keras.losses.SparseCategoricalCrossentropy(ignore_class=1),
            "y": np.zeros(len(X), np.int64),
        },
    ),
    "a callback that sets weights": ("callbacks", {"callbacks": Halves()}),
    "a callback that stops at the begin": ("callbacks", {"callbacks": [StopsEarly()]}),
    "a callback that wants an optimizer": ("callbacks", {"callbacks": [Rates()]}),
    "a metric that is not there": (
        "callbacks",
        {"callbacks": [keras.callbacks.EarlyStopping("val_accuracy")]},
    ),
    "an argument of an optimizer": ("optimizer", {"optimizer": Scaled(scale=2.0)}),
    "a loss of 16 bits": ("loss", {"loss": keras.losses.MeanSquaredError(dtype="float16")}),
    "targets that broadcast": (
        "loss",
        {
            "_model": lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]),
            "y": Y[:, 0],
        },
    ),
    "steps that end within the data": ("steps_per_epoch", {"steps_per_epoch": 2, "epochs": 3}),
    "more steps than batches": ("steps_per_epoch", {"steps_per_epoch": 4}),
    "a loss for whole batches": ("loss", {"loss": Tripled()}),
    "a metric of a batch": ("metrics", {"metrics": [mean_of_batch]}),
    "too many weights": ("sample_weight", {"sample_weight": np.ones((len(X), 2, 3))}),
    "no examples": ("x", {"x": X[:0], "y": Y[:0]}),
    "text": ("x", {"x": "data.csv"}),
    "a batch size of 0": ("batch_size", {"batch_size": 0}),
    "a batch size that replicas do not divide": (
        "batch_size",
        {"batch_size": 9, "parallel": sc.Parallel(accumulate=2)},
    ),
    "no epochs": ("epochs", {"epochs": 0}),
    "an unknown verbosity": ("verbose", {"verbose": 3}),
    "a shuffle of Keras's": ("shuffle", {"shuffle": "batch"}),
    "a short batch with BatchNormalization": ("batch_size", {"_model": normalized}),
    "a parallel that is none": ("parallel", {"parallel": {"replicas": 2}}),
    "an evaluator": (
        "parallel.evaluator",
        {"parallel": sc.Parallel(strategy="multi_worker_mirrored", workers=2, evaluator=True)},
    ),
    "a validation in one part": ("validation_data", {"validation_data": (X,)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_what_it_refuses(name, messages):
    setting, changes = REFUSED[name]
    changes = dict(changes)
    arguments = {
        "model": changes.pop("_model", build)(),
        "x": X,
        "y": Y,
        "loss": "mse",
        "batch_size": 8,
        "verbose": 0,
    }
    with pytest.raises(sc.UserError) as caught:
        sc.fit(**(arguments | changes))
    assert caught.value.setting == setting
    messages.check(str(caught.value).partition("Error: ")[0])  # the rest is Keras's


def test_datasets_that_do_not_fit(messages):
    examples = tf.data.Dataset.from_tensor_slices((X[:, 0], Y[:, 0]))
    growing = tf.data.Dataset.from_generator(
        lambda: ((X[:size], Y[:size]) for size in (2, 4)),
        output_signature=(tf.TensorSpec([None, 4]), tf.TensorSpec([None, 2])),
    )
    for x, more in (
        (examples, {}),
        (examples.batch(4).map(lambda x, y: x), {}),
        (growing, {}),
        (growing, {"y": Y}),
        (growing.take(0), {}),
    ):
        with pytest.raises(sc.UserError) as caught:
            sc.fit(build(), x, loss="mse", verbose=0, **more)
        assert caught.value.setting in ("x", "y")
        messages.check(str(caught.value))


def test_a_metric_that_is_no_mean_is_refused():
    """The values of parts of an epoch do not add up to the area of the epoch."""
    for name in ("auc", "AUC", keras.metrics.AUC(name="auc")):
        with pytest.raises(sc.SettingError) as caught:
            sc.fit(build(), X, Y, loss="mse", metrics=[name], verbose=0)
        assert (caught.value.setting, str(caught.value.value).lower()) == ("metrics", "auc")


@pytest.mark.parametrize("name", ["adam", "adamw", keras.optimizers.SGD(0.1, momentum=0.9)])
def test_replicas_may_divide_the_slots(name):
    made = job.make(
        build(),
        GivenTask(Spec((4,)), None, loss="mse"),
        optimizer=name,
        parallel=sc.Parallel(strategy="grid", replicas=2, zero=1),
        batch_size=8,
        steps=1,
        seed=0,
    )
    assert made.settings.parallel.zero == 1
    made.release()


def test_an_optimizer_of_whole_weights_does_not_divide():
    parallel = sc.Parallel(strategy="grid", replicas=2, zero=1)
    with pytest.raises(sc.SettingError) as caught:
        sc.fit(build(), X, Y, loss="mse", optimizer="adafactor", parallel=parallel, verbose=0)
    assert (caught.value.setting, caught.value.value) == ("parallel.zero", 1)


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"stages": 0, "strategy": "grid"}, "parallel.stages"),
        ({"strategy": "gird"}, "parallel.strategy"),
        ({"stage": 2}, "parallel"),
        ({"stages": 2}, "parallel.stages"),
    ],
)
def test_a_topology_that_is_none(arguments, setting):
    with pytest.raises(sc.UserError) as caught:
        sc.Parallel(**arguments)
    assert caught.value.setting == setting
