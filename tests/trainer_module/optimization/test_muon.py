"""Muon's update against NumPy, the other weights, and the arguments."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

import stagecraft as sc
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models import matrices, variable_patterns
from stagecraft.trainer_module.optimization import slots
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

layers = keras.layers

STEPS = 4

FLOAT64 = 1e-12
"""2 ** -53 times the slope of five iterations, 3.4445 ** 5, and some ten operations."""

DECAY = 2.0**-6
"""Keras rounds it to float32."""


def model(dtype="float64"):
    """Hidden kernels of four kinds; an embedding, norms, a depthwise convolution, a head."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(dtype)
    try:
        given = keras.Input((6,), dtype="int32")
        hidden = layers.Embedding(9, 8, name="embed")(given)
        hidden = hidden + layers.MultiHeadAttention(2, 3, name="attention")(hidden, hidden)
        hidden = layers.LayerNormalization(name="norm")(hidden)
        hidden = layers.DepthwiseConv1D(2, name="depthwise")(hidden)
        hidden = layers.Conv1D(10, 2, name="conv")(hidden)
        hidden = layers.Conv1DTranspose(4, 2, name="up")(hidden)
        hidden = layers.Dense(20, name="dense")(hidden)
        found = keras.Model(given, layers.Dense(3, name="head")(layers.Flatten()(hidden)))
    finally:
        keras.config.set_dtype_policy("float32")
    matrices.mark(found)
    return found


def as_matrix(path: str, kernel: np.ndarray) -> np.ndarray:
    """``[out, in]``, as the papers have it."""
    if path.startswith(("attention/query", "attention/key", "attention/value")):
        return kernel.reshape(len(kernel), -1).T
    if path.startswith("up/"):  # [width, out, in]
        return np.moveaxis(kernel, 1, 0).reshape(kernel.shape[1], -1)
    return kernel.reshape(-1, kernel.shape[-1]).T


def as_kernel(path: str, matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if path.startswith(("attention/query", "attention/key", "attention/value")):
        return matrix.T.reshape(shape)
    if path.startswith("up/"):
        return np.moveaxis(matrix.reshape(shape[1], shape[0], shape[2]), 0, 1)
    return matrix.T.reshape(shape)


def orthogonal(matrix: np.ndarray, iterations: int) -> np.ndarray:
    a, b, c = 3.4445, -4.7750, 2.0315
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / (np.linalg.norm(values) + 1e-7)
    for _ in range(iterations):
        values = a * values + b * values**3 + c * values**5
    return (left * values) @ right


def gradients(found: keras.Model) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    weights = found.trainable_variables
    return [{w.path: draw.standard_normal(w.shape) for w in weights} for _ in range(STEPS)]


def trained(train: TrainSettings, found: keras.Model) -> dict[str, np.ndarray]:
    """The weights after some steps, with rates that change."""
    weights = found.trainable_variables
    variable_patterns.apply(train, found)
    optimizer = make_optimizer(train, weights)

    @tf.function
    def step(rate, given):
        optimizer.learning_rate.assign(rate)
        optimizer.apply(given, weights)

    for number, given in enumerate(gradients(found)):
        rate = train.learning_rate / (1 + number)
        step(tf.constant(rate, tf.float64), [tf.constant(given[w.path], w.dtype) for w in weights])
    return {weight.path: weight.numpy() for weight in weights}


HIDDEN = {
    "attention/query/kernel",
    "attention/key/kernel",
    "attention/value/kernel",
    "attention/attention_output/kernel",
    "conv/kernel",
    "up/kernel",
    "dense/kernel",
}

ARGUMENTS = {
    "default": {},
    "airbench": {"momentum": 0.6, "iterations": 3, "normalize_weights": True, "rate_factor": 4.5},
    "no Nesterov": {"nesterov": False, "rate_factor": 0.5},
    "no momentum": {"momentum": 0},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_kernels_step_by_step(name):
    given = ARGUMENTS[name]
    train = TrainSettings(
        optimizer="muon",
        optimizer_args=given,
        learning_rate=0.1,
        weight_decay=DECAY,
        learning_rate_multipliers={"^dense/": 2.0},
        weight_decay_exclude="^conv/",
    )
    found = model()
    start = {weight.path: weight.numpy() for weight in found.trainable_variables}
    ends = trained(train, found)
    momentum, nesterov = given.get("momentum", 0.95), given.get("nesterov", True)
    for path in HIDDEN:
        weight = as_matrix(path, start[path])
        out, inputs = weight.shape
        velocity = np.zeros_like(weight)
        for number, each in enumerate(gradients(found)):
            rate = 0.1 / (1 + number) * given.get("rate_factor", 1.0)
            rate *= 2.0 if path == "dense/kernel" else 1.0
            gradient = as_matrix(path, each[path])
            velocity = momentum * velocity + gradient
            ahead = gradient + momentum * velocity if nesterov else velocity
            weight = weight * (1 - (0 if path == "conv/kernel" else DECAY) * rate)
            if given.get("normalize_weights"):
                weight = weight * math.sqrt(out) / (np.linalg.norm(weight) + 1e-7)
            else:
                rate *= math.sqrt(max(1, out / inputs))
            weight = weight - rate * orthogonal(ahead, given.get("iterations", 5))
        expected = as_kernel(path, weight, start[path].shape)
        np.testing.assert_allclose(ends[path], expected, rtol=0, atol=FLOAT64, err_msg=path)


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        (None, {"optimizer": "sgd", "momentum": 0.8}),
        ("sgd", {"optimizer": "sgd", "momentum": 0.8}),
        (
            {"name": "adamw", "beta_2": 0.9},
            {"optimizer": "adamw", "optimizer_args": {"beta_2": 0.9}},
        ),
    ],
)
def test_the_other_weights_have_the_update_of_the_other_optimizer(others, alone):
    """Bit for bit; the head's own rate is a factor as elsewhere."""
    common = {"learning_rate": 0.1, "weight_decay": 0.01, "learning_rate_multipliers": {"^head": 3}}
    args = {"rate_factor": 7.0} | ({} if others is None else {"others": others})
    train = TrainSettings(optimizer="muon", optimizer_args=args, momentum=0.8, **common)
    found = trained(train, model())
    expected = trained(TrainSettings(**alone, **common), model())
    for path in found.keys() - HIDDEN:
        np.testing.assert_array_equal(found[path], expected[path], err_msg=path)
    for path in HIDDEN:
        assert not np.allclose(found[path], expected[path]), path


@pytest.mark.slow
def test_exclude_replaces_the_output_layers():
    args = {"exclude": ["^attention/", "^up/"]}
    common = {"learning_rate": 0.1, "weight_decay": 0.01}
    found = trained(TrainSettings(optimizer="muon", optimizer_args=args, **common), model())
    default = trained(TrainSettings(optimizer="muon", **common), model())
    sgd = trained(TrainSettings(**common), model())
    for path in found:
        of_sgd = np.array_equal(found[path], sgd[path])
        assert of_sgd != (path in {"conv/kernel", "dense/kernel", "head/kernel"}), path
    np.testing.assert_array_equal(found["conv/kernel"], default["conv/kernel"])


def test_float32_weights_are_updated_in_float32():
    train = TrainSettings(optimizer="muon", learning_rate=0.1)
    same = model("float32")
    precise = model()
    for weight, value in zip(same.weights, precise.weights, strict=True):
        weight.assign(value)
    precise, found = trained(train, precise), trained(train, same)
    for path, value in found.items():
        assert value.dtype == np.float32
        # The sums of 40 products of each iteration, and the slopes of five.
        np.testing.assert_allclose(value, precise[path], atol=40 * 2**-24 * 3.4445**5)


def test_a_kernel_without_a_gradient_or_of_zeros_stays_finite():
    found = model()
    found.get_layer("dense").kernel.assign(np.zeros((4, 20)))
    weights = found.trainable_variables
    train = TrainSettings(optimizer="muon", optimizer_args={"normalize_weights": True})
    make_optimizer(train, weights).apply([tf.zeros(w.shape, w.dtype) for w in weights], weights)
    assert all(np.isfinite(weight.numpy()).all() for weight in weights)
    np.testing.assert_array_equal(found.get_layer("dense").kernel, np.zeros((4, 20)))
    norm = np.linalg.norm(found.get_layer("conv").kernel)
    np.testing.assert_allclose(norm, math.sqrt(10), rtol=1e-6)


def test_slots_have_the_names_of_their_weights():
    weights = model().trainable_variables
    optimizer = make_optimizer(TrainSettings(optimizer="muon"), weights)
    names = [name for name, _ in slots.named(optimizer)]
    assert slots.shared(optimizer) == {"optimizer/iteration", "optimizer/learning_rate"}
    assert len(set(names)) == len(names) == len(weights) + 2
    assert set(slots.owners(optimizer).values()) == set(range(len(weights)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 1),
        ({"others": "adamw"}, 2),
        ({"others": {"name": "adam", "amsgrad": True}}, 3),
    ],
)
def test_slots_in_a_plan(arguments, expected):
    train = TrainSettings(optimizer="muon", optimizer_args=arguments)
    assert registries.OPTIMIZERS.get("muon").slots_with(train) == expected


@pytest.mark.parametrize(
    ("args", "value"),
    [
        ({"momentum": 1}, {"momentum": 1}),
        ({"momentum": "0.9"}, {"momentum": "0.9"}),
        ({"nesterov": 1}, {"nesterov": 1}),
        ({"iterations": 0}, {"iterations": 0}),
        ({"iterations": 2.5}, {"iterations": 2.5}),
        ({"normalize_weights": "yes"}, {"normalize_weights": "yes"}),
        ({"rate_factor": 0}, {"rate_factor": 0}),
        ({"exclude": 3}, {"exclude": 3}),
        ({"exclude": ["a", "("]}, {"exclude": ["a", "("]}),
        ({"exclude_layers": ["head"]}, "exclude_layers"),
        ({"learning_rate": 0.1}, "learning_rate"),
        ({"others": 3}, 3),
        ({"others": "nadam"}, "nadam"),
        ({"others": "muon"}, "muon"),
        ({"others": {"name": "sgd", "momentum": 0.5}}, "momentum"),
    ],
)
def test_wrong_arguments_are_refused(args, value):
    error = refusal(TrainSettings, {"optimizer": "muon", "optimizer_args": args})
    assert (error.setting, error.value) == ("train.optimizer_args", value)


@pytest.mark.parametrize(
    ("train", "setting"),
    [
        ({"optimizer_args": {"exclude": ["^head/", "^top/"]}}, "train.optimizer_args"),
        ({"optimizer_args": {"exclude": "kernel"}}, "train.optimizer"),
        ({"frozen": "^(attention|conv|up|dense)/"}, "train.optimizer"),
    ],
)
def test_it_needs_hidden_kernels_and_patterns_that_match(train, setting):
    with pytest.raises(SettingError) as caught:
        variable_patterns.apply(TrainSettings(optimizer="muon", **train), model())
    assert caught.value.setting == setting


@pytest.mark.parametrize(("name", "value"), [("zero", 1), ("shards", 2)])
def test_whole_kernels_are_not_divided(name, value):
    parallel = {"strategy": "grid", "replicas": 2, name: value}
    error = refusal(TrainingSettings, {"train": {"optimizer": "muon"}, "parallel": parallel})
    assert (error.setting, error.value) == (f"parallel.{name}", value)


def test_an_object_of_keras_has_the_same_update():
    common = {"momentum": 0.7, "iterations": 3, "exclude": ["^head/"]}
    others = keras.optimizers.Adam(beta_2=0.9)
    optimizer = sc.Muon(0.1, weight_decay=0.01, others=others, name="mine", **common)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    found = model()
    weights = found.trainable_variables
    again.exclude_from_weight_decay([w for w in weights if "kernel" not in w.name])
    for number, given in enumerate(gradients(found)):
        again.learning_rate.assign(0.1 / (1 + number))
        again.apply([tf.constant(given[w.path]) for w in weights], weights)
    args = common | {"others": {"name": "adam", "beta_2": 0.9}}
    train = TrainSettings(
        optimizer="muon", optimizer_args=args, learning_rate=0.1, weight_decay=0.01
    )
    for path, expected in trained(train, model()).items():
        [value] = [weight for weight in weights if weight.path == path]
        # Keras keeps the rate in float32.
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"iterations": 0}, {"exclude": "("}], ids=str)
def test_wrong_arguments_of_the_object(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sc.Muon(**wrong)
