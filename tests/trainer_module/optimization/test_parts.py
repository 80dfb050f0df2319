"""Several optimizers in one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.optimization import slots
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.settings import TrainSettings

ARGS = {
    "^wide/": {"name": "ftrl", "l1_regularization_strength": 0.01},
    "kernel": {"name": "adam", "beta_1": 0.5},
    "": {"name": "adagrad"},
}
OWN = {
    "wide/kernel": {"optimizer": "ftrl", "optimizer_args": {"l1_regularization_strength": 0.01}},
    "wide/bias": {"optimizer": "ftrl", "optimizer_args": {"l1_regularization_strength": 0.01}},
    "deep/kernel": {"optimizer": "adam", "optimizer_args": {"beta_1": 0.5}},
    "deep/bias": {"optimizer": "adagrad"},
}


def model():
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    given = keras.Input((4,))
    hidden = keras.layers.Dense(3, name="deep")(given)
    return keras.Model(given, keras.layers.Dense(2, name="wide")(hidden))


def trained(train, weights):
    optimizer = make_optimizer(train, weights)
    draw = np.random.default_rng(0)
    by_path = {
        path: [draw.standard_normal(shape).astype(np.float32) for _ in range(4)]
        for path, shape in {
            "deep/kernel": (4, 3),
            "deep/bias": (3,),
            "wide/kernel": (3, 2),
            "wide/bias": (2,),
        }.items()
    }

    @tf.function
    def step(gradients):
        optimizer.apply(gradients, weights)

    for number in range(4):
        step([tf.constant(by_path[weight.path][number]) for weight in weights])
    return optimizer


def test_each_weight_has_the_update_of_its_own_optimizer():
    """Bit for bit: with factors on the rate and with weight decay too."""
    common = {
        "learning_rate": 0.1,
        "weight_decay": 0.01,
        "learning_rate_multipliers": {"^deep/": 0.5},
    }
    found = model()
    trained(TrainSettings(optimizer="parts", optimizer_args=ARGS, **common), found.weights)
    for path, own in OWN.items():
        expected = model()
        [weight] = [each for each in expected.weights if each.path == path]
        trained(TrainSettings(**own, **common), [weight])
        [value] = [each for each in found.weights if each.path == path]
        np.testing.assert_array_equal(value, weight, err_msg=path)


def test_slots_have_the_names_of_their_weights():
    weights = model().weights
    optimizer = trained(TrainSettings(optimizer="parts", optimizer_args=ARGS), weights)
    names = [name for name, _ in slots.named(optimizer)]
    assert len(set(names)) == len(names) == 2 + 2 * 2 + 2 + 1
    assert slots.shared(optimizer) == {"optimizer/iteration", "optimizer/learning_rate"}
    assert sum("deep_kernel" in name for name in names) == 2
    assert int(optimizer.iterations) == 4


def test_a_plan_counts_the_most_slots():
    train = TrainSettings(optimizer="parts", optimizer_args=ARGS)
    assert registries.OPTIMIZERS.get("parts").slots_with(train) == 2


@pytest.mark.parametrize(
    ("args", "value"),
    [
        ({}, "{}"),
        ({"(": {"name": "sgd"}}, "("),
        ({"": "sgd"}, "sgd"),
        ({"": {"beta_1": 0.5}}, {"beta_1": 0.5}),
        ({"": {"name": "nadam"}}, "nadam"),
        ({"": {"name": "parts"}}, "parts"),
        ({"": {"name": "sgd", "momentum": 0.5}}, "momentum"),
        ({"": {"name": "adam", "learning_rate": 0.5}}, "learning_rate"),
    ],
)
def test_wrong_arguments_are_refused(args, value):
    error = refusal(TrainSettings, {"optimizer": "parts", "optimizer_args": args})
    assert (error.setting, error.value) == ("train.optimizer_args", value)


@pytest.mark.parametrize("args", [{"^wide": {"name": "sgd"}}, ARGS | {"^top": {"name": "sgd"}}])
def test_patterns_fit_the_model(args):
    train = TrainSettings(optimizer="parts", optimizer_args=args)
    with pytest.raises(SettingError) as caught:
        variable_patterns.apply(train, model())
    assert caught.value.setting == "train.optimizer_args"
