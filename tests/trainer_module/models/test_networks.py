import math

import keras
import numpy as np
import pytest
from model_arguments import build, classes
from networks_built import built

from stagecraft.trainer_module.models.layers.own_layers import Shortcut


def _weights(model: keras.Model) -> int:
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def _convolutions_and_dense(model: keras.Model) -> int:
    kinds = (keras.layers.Conv2D, keras.layers.Dense)
    return sum(isinstance(layer, kinds) for layer in model.layers)


@pytest.mark.parametrize(
    ("name", "millions", "digits"),
    [
        ("resnet20", 0.27, 2),  # He et al. 2015, table 6
        ("resnet32", 0.46, 2),
        ("resnet56", 0.85, 2),
        ("wide_resnet_40_1", 0.6, 1),  # Zagoruyko and Komodakis 2016
        ("wide_resnet_16_8", 11.0, 1),
    ],
)
def test_sizes_are_those_of_the_papers(name, millions, digits):
    assert round(_weights(built(name)) / 1e6, digits) == millions


@pytest.mark.parametrize("depth", [8, 20, 56])
def test_a_resnet_has_as_many_layers_as_its_name_says(depth):
    assert _convolutions_and_dense(built(f"resnet{depth}")) == depth


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (16, 4), (28, 2)])
def test_a_wide_resnet_has_as_many_layers_and_three_shortcuts(depth, width):
    # The paper's depth counts the three 1 by 1 shortcuts and not the dense layer: 6n + 4.
    model = built(f"wide_resnet_{depth}_{width}")
    shortcuts = [layer for layer in model.layers if layer.name.endswith("shortcut_conv")]
    shortcuts += [layer for layer in model.layers if layer.name.endswith("shortcut")]
    assert len(shortcuts) == (2 if width == 1 else 3)
    assert _convolutions_and_dense(model) - 1 - len(shortcuts) + 3 == depth


@pytest.mark.parametrize("name", ["cnn", "resnet8", "wide_resnet_10_2", "airbench_4_8_6"])
@pytest.mark.parametrize(("shape", "count"), [((32, 32, 3), 10), ((24, 40, 1), 7)])
def test_images_of_any_size_give_logits(name, shape, count):
    keras.utils.set_random_seed(0)
    model = build(name, classes(count, shape))
    logits = np.asarray(model(np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)))
    assert model.output_shape == (None, count)
    assert logits.shape == (4, count)
    assert np.isfinite(logits).all()
    assert not np.allclose(logits.sum(axis=1), 1)  # no softmax


@pytest.mark.parametrize("name", ["cnn", "resnet8", "wide_resnet_10_1", "airbench_4_8_6"])
def test_weights_come_from_the_seed(name):
    models = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        models.append(build(name))
    first, same, other = (np.concatenate([w.ravel() for w in m.get_weights()]) for m in models)
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


@pytest.mark.parametrize("name", ["cnn", "resnet8", "wide_resnet_10_1", "airbench_4_8_6"])
def test_paths_are_the_same_each_time_and_all_different(name):
    paths = [[variable.path for variable in build(name).variables] for _ in range(2)]
    assert paths[0] == paths[1]
    assert len(set(paths[0])) == len(paths[0])


@pytest.mark.parametrize("name", ["cnn", "resnet8", "wide_resnet_10_1", "airbench_4_8_6"])
def test_a_clone_and_a_saved_copy_compute_the_same(name, tmp_path):
    model = build(name)
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    for copy in (clone, keras.models.load_model(tmp_path / "model.keras")):
        np.testing.assert_array_equal(copy(images), model(images))


def test_the_shortcut_takes_every_other_pixel_and_adds_channels_of_zeros():
    inputs = np.random.default_rng(0).normal(size=(2, 6, 4, 2)).astype(np.float32)
    outputs = np.asarray(Shortcut(5, 2)(inputs))
    assert outputs.shape == (2, 3, 2, 5)
    np.testing.assert_array_equal(outputs[..., 1:3], inputs[:, ::2, ::2])
    assert not outputs[..., [0, 3, 4]].any()
