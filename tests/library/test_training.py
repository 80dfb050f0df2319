"""Training in one's own run_fn: a plain call, a compiled model, several processes, resume."""

from __future__ import annotations

import pathlib
import random
import types
from typing import Any

import houses_task
import keras
import numpy as np
import pytest
from made_once import made_once

import stagecraft as sc
from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.training import record

GRID = {"strategy": "grid", "stages": 2, "replicas": 2, "virtual_devices": 4}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "houses", houses_task.write_data)


@pytest.fixture
def fn_args(data: pathlib.Path, tmp_path: pathlib.Path) -> types.SimpleNamespace:
    """As TFX's own Trainer passes them."""
    return types.SimpleNamespace(
        train_files=[str(data / "examples" / "Split-train" / "*")],
        eval_files=[str(data / "examples" / "Split-eval" / "*")],
        transform_output=str(data / "transform_graph"),
        serving_model_dir=str(tmp_path / "serving"),
        model_run_dir=str(tmp_path / "run"),
        train_steps=8,
        eval_steps=None,
        custom_config=None,
        hyperparameters=None,
    )


def build(width: int = 4) -> Any:
    inputs = {name: keras.Input([1], name=name) for name in houses_task.NUMBERS}
    hidden = keras.layers.concatenate(list(inputs.values()))
    hidden = keras.layers.Dense(width, activation="relu", name="hidden")(hidden)
    return keras.Model(inputs, keras.layers.Dense(1, name="price")(hidden))


def task(**more: Any) -> sc.ExamplesTask:
    given = {"loss": "mse", "metrics": ["mae"], "features": houses_task.NUMBERS} | more
    return sc.ExamplesTask("price", **given)


def served(fn_args: types.SimpleNamespace, count: int = 3) -> np.ndarray:
    import tensorflow as tf

    rows = houses_task.rows(count)
    examples = tf.constant(
        [houses_task.serialized({k: row[k] for k in ("area", "rooms")}) for row in rows]
    )
    found = tf.saved_model.load(fn_args.serving_model_dir).signatures["serving_default"]
    return np.asarray(found(examples=examples)["outputs"])


def metric(fn_args: types.SimpleNamespace) -> float:
    """The mean absolute error of the best checkpoint."""
    return float(record.read(fn_args.model_run_dir)["best"]["mae"])


def test_three_lines(fn_args):
    before = random.getstate(), keras.config.dtype_policy().name
    sc.train(fn_args, model=build, task=task(), optimizer="adam", batch_size=20)
    assert (random.getstate(), keras.config.dtype_policy().name) == before
    assert served(fn_args).shape == (3, 1)
    notes = record.read(fn_args.model_run_dir)
    assert notes["steps"] == 8 and notes["best"]["mae"] > 0
    found = notes["settings"]
    rates = ("train_learning_rate", "train_weight_decay", "train_schedule")
    assert [found[name] for name in rates] == [0.001, 0.0, "constant"]  # as Keras has them


def test_a_compiled_model_needs_no_more_and_goes_on_from_its_weights(fn_args):
    model = build(5)
    model.set_weights([np.full(each.shape, 0.5) for each in model.get_weights()])
    model.compile(
        keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(1e-6, 1, 0.9)),
        loss=keras.losses.Huber(0.5),
        metrics=["mae", keras.metrics.MeanSquaredError(name="square")],
    )
    own = sc.ExamplesTask("price", features=houses_task.NUMBERS)
    sc.train(fn_args, model=model, task=own, batch_size=20, steps=2)
    rows = houses_task.rows(3)
    inputs = {name: np.array([[row[name]] for row in rows]) for name in houses_task.NUMBERS}
    np.testing.assert_allclose(served(fn_args), model(inputs), atol=1e-3)
    assert {"mae", "square"} <= record.read(fn_args.model_run_dir)["best"].keys()


@pytest.mark.slow
def test_devices_that_this_process_cannot_make(fn_args):
    """Replicas and stages in a process of its own give what one device gives."""
    import tensorflow as tf

    tf.constant(0)  # TensorFlow runs, with one CPU
    more = {"model": build, "optimizer": "sgd", "batch_size": 20, "steps": 4}
    sc.train(fn_args, task=task(), parallel=sc.Parallel(**GRID, microbatches=2), **more)
    assert record.read(fn_args.model_run_dir)["topology"]["stages"] == 2
    many = served(fn_args)
    fn_args.model_run_dir += "2"
    sc.train(fn_args, task=task(), **more)
    np.testing.assert_allclose(many, served(fn_args), rtol=1e-5)


@pytest.mark.slow
def test_workers_receive_objects(fn_args):
    """A loss that is a closure, in two processes."""
    factor = 2.0
    parallel = sc.Parallel(strategy="multi_worker_mirrored", workers=2)
    own = task(
        loss=lambda targets, outputs: factor * keras.losses.mean_absolute_error(targets, outputs)
    )
    sc.train(fn_args, model=lambda: build(3), task=own, parallel=parallel, batch_size=20)
    assert record.read(fn_args.model_run_dir)["topology"]["workers"] == 2
    assert served(fn_args).shape == (3, 1)


@pytest.mark.slow
def test_it_resumes(fn_args, tmp_path):
    more = {"model": build, "task": task(), "batch_size": 20, "checkpoint_dir": tmp_path / "kept"}
    sc.train(fn_args, **more, optimizer="adam", steps=2)
    sc.train(fn_args, **more, optimizer="adam", steps=4)
    notes = record.read(fn_args.model_run_dir)
    assert (notes["resumed_from"], notes["steps"]) == (2, 4)


def test_found_values_win(fn_args):
    fn_args.hyperparameters = {
        "space": [],
        "values": {"train.epochs": 1.0, "train.batch_size": 30, "units": 7},
    }
    sc.train(fn_args, model=build, task=task(), batch_size=20, steps=4)
    assert record.read(fn_args.model_run_dir)["steps"] == 2


def test_settings_of_our_trainer_are_the_base(fn_args):
    fn_args.custom_config = {"settings": {"train_batch_size": 15, "train_steps": 3}}
    sc.train(fn_args, model=build, task=task(), learning_rate=0.5)
    found = record.read(fn_args.model_run_dir)["settings"]
    assert (found["train_batch_size"], found["train_learning_rate"]) == (15, 0.5)


@pytest.mark.slow
def test_without_transform(fn_args, data):
    """The model receives the raw features of the schema."""
    fn_args.transform_output = None
    fn_args.schema_path = str(data / "schema" / "schema.pbtxt")
    for steps in (2, 3):  # the graph may be there
        sc.train(fn_args, model=build, task=task(), batch_size=20, steps=steps)
    assert served(fn_args).shape == (3, 1)


@pytest.mark.parametrize(
    ("more", "setting"),
    [
        ({"task": sc.ExamplesTask("nothing", loss="mse")}, "task.label"),
        ({"task": sc.ExamplesTask("price", features=["age"], loss="mse")}, "task.features"),
        ({"task": sc.ExamplesTask("price")}, "task.loss"),
        ({"task": task(loss=keras.losses.MeanSquaredError(reduction="sum"))}, "task.loss"),
        ({"optimizer": lambda: keras.optimizers.SGD(0.1, clipnorm=1.0)}, "train.optimizer"),
        ({"task": "nothing"}, "task.name"),
        ({"model": 3}, "train.model"),
        ({"batch_size": 0}, "train.batch_size"),
        ({"optimizer": "addam"}, "train.optimizer"),
        ({"parallel": sc.Parallel(launcher="kubernetes")}, "parallel.launcher"),
    ],
)
def test_refusals(fn_args, more, setting):
    if callable(optimizer := more.get("optimizer")):  # an object would start TensorFlow
        more = {"optimizer": optimizer()}
    with pytest.raises(UserError) as error:
        sc.train(fn_args, **({"model": build, "task": task()} | more))
    assert error.value.setting == setting


def test_messages_name_objects(fn_args):
    def broken() -> Any:
        raise ValueError("no layers")

    with pytest.raises(UserError) as error:
        sc.train(fn_args, model=broken, task=task(), optimizer="sgd", batch_size=20)
    assert str(error.value).startswith("train.model: your_model:")


def test_refusals_of_what_tfx_passes(fn_args):
    fn_args.hyperparameters = {"values": {"parallel.stagse": 2}}
    with pytest.raises(SettingError) as error:
        sc.train(fn_args, model=build, task=task())
    assert error.value.suggestion == "parallel.stages"
    fn_args.transform_output = None
    with pytest.raises(UserError) as refused:
        sc.train(fn_args, model=build, task=task())
    assert refused.value.setting == "transform_graph"
    with pytest.raises(TypeError, match="batch_size"):
        sc.train(fn_args, model=build, batchsize=3)
