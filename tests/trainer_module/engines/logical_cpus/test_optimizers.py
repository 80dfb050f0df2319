"""Optimizers and settings of the update, against Keras and between topologies, in float64."""

import functools
from typing import Any

import driving
import keras
import numpy as np
import pytest
import tensorflow as tf
from model_arguments import classes

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.optimization.gradients import add_noise
from stagecraft.trainer_module.settings import TrainSettings

STEPS = 5

FLOAT64 = 1e-12
"""2 ** -53 times some thousand operations on values of about 1."""

RATE = 0.01

KERAS: dict[str, tuple[str, dict[str, Any]]] = {
    "adam": ("Adam", {"beta_1": 0.8, "epsilon": 1e-5}),
    "adamw": ("AdamW", {"beta_2": 0.99, "amsgrad": True}),
    "sgd": ("SGD", {"nesterov": False}),
    "lion": ("Lion", {"beta_1": 0.8}),
    "rmsprop": ("RMSprop", {"rho": 0.8, "momentum": 0.5, "centered": True}),
}


def trained(parallel: dict[str, Any], steps: int = STEPS, **train: Any) -> dict[str, np.ndarray]:
    """The state after some steps."""
    asked = {"precision": "float64", **parallel}
    engine = driving.make(asked, **{"learning_rate": RATE, **train})
    engine.train(driving.feed(engine), steps)
    return engine.state()


@pytest.mark.parametrize("name", KERAS)
def test_one_device_is_train_on_batch(name):
    class_name, arguments = KERAS[name]
    found = trained(
        driving.ONE, optimizer=name, optimizer_args=arguments, weight_decay=0.01, momentum=0.5
    )
    settings = TrainSettings(model="networks:plain", seed=0)
    model = assemble(settings, classes(driving.CLASSES), precision="float64")
    if name == "sgd":
        arguments = arguments | {"momentum": 0.5}
    with floatx("float64"):
        optimizer = getattr(keras.optimizers, class_name)(RATE, weight_decay=0.01, **arguments)
        optimizer.exclude_from_weight_decay(
            [each for each in model.trainable_variables if "kernel" not in each.path]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=False)
        for batch in driving.dataset().take(STEPS):
            model.train_on_batch(batch.inputs, batch.targets)
    for variable in model.variables:
        expected = variable.numpy()
        got = found[f"model/{variable.path}"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=FLOAT64, err_msg=variable.path)
    slots = {name for name in found if name.startswith("optimizer/")}
    assert len(slots) == len(optimizer.variables)


@functools.cache
def alone(**train: Any) -> dict[str, np.ndarray]:
    return trained(driving.ONE, **train)


OTHERS = set(registries.OPTIMIZERS.names()) - {"adam", "lion", "parts"}
TOLERANCE = {"adadelta": 1e-10, "ftrl": 1e-10}
"""Small slots are divided by."""


@pytest.mark.parametrize("parallel", [driving.STAGES, driving.MIRRORED], ids=driving.label)
@pytest.mark.parametrize("name", ["adam", "lion", *map(driving.rare, sorted(OTHERS))])
def test_every_topology_is_one_device(name, parallel):
    """Slots have the same names and values, so that a checkpoint goes from one to the other."""
    tolerance = TOLERANCE.get(name, 1e-11)
    driving.assert_near(trained(parallel, optimizer=name), alone(optimizer=name), tolerance)


PARTS = '{"^conv0/": {"name": "ftrl"}, "kernel": {"name": "adam"}, "": {"name": "adagrad"}}'
UPDATES: dict[str, dict[str, Any]] = {
    "parts": {
        "optimizer": "parts",
        "optimizer_args": PARTS,
        "learning_rate_multipliers": '{"^conv0/": 4.0}',
    },
    "many": {
        "optimizer": "adamw",
        "learning_rate_multipliers": '{"conv0|logits/bias": 0.1, "logits": 2.0}',
        "weight_decay": 0.1,
        "weight_decay_exclude": "logits/kernel",
        "frozen": "conv1/",
        "gradient_noise": 0.1,
        "clip_norm": 0.5,
        "schedule": "exponential_decay",
        "schedule_args": '{"decay_steps": 3, "decay_rate": 0.5}',
    },
    "value": {"clip_value": 0.01, "schedule": "reduce_on_plateau"},
}


@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        ("parts", driving.STAGES),
        ("parts", driving.MIRRORED),
        ("many", driving.STAGES),
        driving.rare("many", driving.MIRRORED),
        driving.rare("value", driving.STAGES),
        driving.rare("value", driving.MIRRORED),
    ],
    ids=driving.label,
)
def test_settings_of_the_update_on_every_topology(name, parallel):
    driving.assert_near(trained(parallel, **UPDATES[name]), alone(**UPDATES[name]), FLOAT64)


def test_noise_is_annealed_and_belongs_to_a_weight():
    """Neelakantan et al. 2015, equation 1; as the only part of a step without a gradient."""
    zeros = [tf.zeros([4000])] * 2

    def noise(step: int, seed: int = 0) -> list[np.ndarray]:
        added = add_noise(zeros, ["a", "b"], 0.3, seed, tf.constant(step, tf.int64))
        return [each.numpy() for each in added]

    first, second = noise(0)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    np.testing.assert_array_equal(noise(0)[0], first)
    for other in (noise(1)[0], noise(0, seed=1)[0]):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.1
    for step in (0, 9):
        variance = 0.3 / (1 + step) ** 0.55
        # The variance of 4,000 draws is off by a standard deviation of sqrt(2 / 4000) = 2 %.
        np.testing.assert_allclose(noise(step)[0].var(), variance, rtol=0.1)


def test_multipliers_scale_updates_and_decay():
    """After one step from equal weights, with the gradients of the same batch."""
    common = {"optimizer": "adamw", "weight_decay": 0.1}
    start = driving.make(driving.ONE | {"precision": "float64"}, **common).state()
    once = trained(driving.ONE, 1, **common)
    more = trained(driving.ONE, 1, learning_rate_multipliers={"conv0": 3, "conv": 0.5}, **common)
    factors = {name: 1.0 for name in start if name.startswith("model/")}
    factors |= {name: 0.5 for name in factors if "conv" in name}
    factors |= {name: 3.0 for name in factors if "conv0" in name}
    assert set(factors.values()) == {1.0, 0.5, 3.0}
    for name, factor in factors.items():
        expected = start[name] + factor * (once[name] - start[name])
        np.testing.assert_allclose(more[name], expected, rtol=0, atol=1e-14, err_msg=name)


FROZEN = {"frozen": "conv1/", "optimizer": "adam"}


def test_frozen_weights_have_no_slots():
    state = alone(**FROZEN)
    assert not [name for name in state if name.startswith("optimizer/") and "conv1" in name]
    start = driving.make(driving.ONE | {"precision": "float64"}, **FROZEN).state()
    kept = {name for name in start if np.array_equal(start[name], state[name])}
    assert {"model/conv1/kernel", "model/conv1/bias"} == {n for n in kept if n.startswith("model/")}


def test_clipping_by_value_is_that_of_keras():
    engine = driving.make(driving.ONE, optimizer="sgd", momentum=0, weight_decay=0, clip_value=1e-3)
    before = engine.state()
    _, gradients = driving.gradients(engine)
    engine.train(driving.feed(engine), 1)
    for path, gradient in gradients.items():
        step = before[f"model/{path}"] - engine.state()[f"model/{path}"]
        np.testing.assert_allclose(step, 0.05 * np.clip(gradient, -1e-3, 1e-3), atol=1e-7)


def test_a_user_s_optimizer_is_a_template(monkeypatch):
    import networks

    template = keras.optimizers.Adam(RATE, beta_1=0.7, weight_decay=0.1)
    monkeypatch.setattr(networks, "template", template, raising=False)
    monkeypatch.setattr(networks, "made", lambda: keras.optimizers.Adam(RATE, 0.7), raising=False)
    train = {"optimizer_args": '{"beta_1": 0.7}', "weight_decay": 0.1, "optimizer": "adam"}
    one = alone(**train)
    mine = {"optimizer": "networks:template", "weight_decay": 0.1}
    driving.assert_near(trained(driving.STAGES, **mine), one, FLOAT64)
    assert not template.built
    made = {"optimizer": "networks:made", "weight_decay": 0}
    found = trained(driving.ONE, **made)
    driving.assert_near(found, alone(**train | {"weight_decay": 0}), FLOAT64)


@pytest.mark.parametrize("parallel", [driving.STAGES, driving.rare(driving.MIRRORED)])
def test_muon_of_keras_is_an_object_of_yours(parallel, monkeypatch):
    import networks

    def made() -> keras.optimizers.Optimizer:
        return keras.optimizers.Muon(RATE, exclude_layers=["logits"])

    monkeypatch.setattr(networks, "made", made, raising=False)
    mine = {"optimizer": "networks:made", "weight_decay": 0.0}
    found, expected = trained(parallel, **mine), trained(driving.ONE, **mine)
    # Its iterations multiply rounding errors.
    driving.assert_near(found, expected, 1e-8)


def test_a_factor_on_the_rate_is_in_the_state():
    engine = driving.make(driving.STAGES, schedule="reduce_on_plateau", learning_rate=0.5)
    engine.scale_learning_rate(0.25)
    assert engine.learning_rate == 0.125
    assert engine.state()["learning_rate_factor"] == 0.25
    other = driving.make(driving.MIRRORED, schedule="reduce_on_plateau", learning_rate=0.5)
    other.restore(engine.state())
    assert other.learning_rate == 0.125
