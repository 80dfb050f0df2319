import itertools

import keras
import numpy as np
import pytest
from model_arguments import build, classes
from networks_built import built

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.own_layers import PartialIdentity
from stagecraft.trainer_module.settings import TrainSettings


def _size(variables) -> int:
    return sum(int(np.prod(variable.shape)) for variable in variables)


def test_has_the_weights_of_airbench94():
    model = built("airbench_64_256_256")
    widths = [24, 64, 64, 256, 256, 256, 256]
    kernels = sum(9 * one * two for one, two in itertools.pairwise(widths))
    biases = 24 + sum(widths[1:])
    assert _size(model.trainable_variables) == kernels + biases + 2560
    norms = [each for each in model.layers if isinstance(each, keras.layers.BatchNormalization)]
    assert len(norms) == 6
    assert not any(norm.scale for norm in norms)


def test_the_logits_are_a_ninth():
    model = built("airbench_64_256_256")
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)
    logits = keras.Model(model.input, model.get_layer("logits").output)(images)
    np.testing.assert_array_equal(model(images), logits * np.float32(1 / 9))


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 8), (8, 3), (4, 4), (1, 1)])
def test_a_convolution_begins_as_the_identity(inputs, outputs):
    layer = keras.layers.Conv2D(
        outputs, 3, padding="same", use_bias=False, kernel_initializer=PartialIdentity()
    )
    given = np.random.default_rng(0).normal(size=(2, 5, 5, inputs)).astype(np.float32)
    result = np.asarray(layer(given))
    same = min(inputs, outputs)
    np.testing.assert_array_equal(result[..., :same], given[..., :same])
    random = np.asarray(layer.kernel)[..., same:]
    limit = (9 * inputs) ** -0.5
    assert np.abs(random).max(initial=0) <= limit
    if outputs > inputs:
        assert random.std() == pytest.approx(limit / 3**0.5, rel=0.3)


def test_an_initializer_makes_a_copy_of_itself():
    one = PartialIdentity(seed=3)
    two = PartialIdentity.from_config(one.get_config())
    np.testing.assert_array_equal(one((3, 3, 2, 4)), two((3, 3, 2, 4)))


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_16_bits_leave_the_whitening_in_float32(precision):
    train, shape = TrainSettings(model="airbench_2_3_4"), classes(4, (9, 9, 3))
    model = assemble(train, shape, precision=precision)
    wanted = "float64" if precision == "float64" else "float32"
    assert model.get_layer("whitening").compute_dtype == wanted
    assert model.get_layer("group1_1_conv").compute_dtype == precision.removeprefix("mixed_")


@pytest.mark.parametrize("shape", [(8, 32, 3), (32, 8, 3), (1, 1, 1)])
def test_too_small_pictures_are_refused(shape):
    with pytest.raises(SettingError) as caught:
        build("airbench_64_256_256", classes(10, shape))
    assert (caught.value.setting, caught.value.value) == ("train.model", "airbench_64_256_256")
    assert build("airbench_1_1_1", classes(2, (9, 9, 1))).output_shape == (None, 2)


@pytest.mark.parametrize("name", ["airbench_0_1_1", "airbench_64", "airbench94", "airbench_6_7_-8"])
def test_other_names_are_refused(name):
    with pytest.raises(SettingError) as caught:
        build(name)
    assert (caught.value.setting, caught.value.value) == ("train.model", name)
    assert "airbench_64_256_256" in caught.value.suggestion
