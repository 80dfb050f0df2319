import keras
import numpy as np
import pytest
from model_arguments import classes

from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.models.layers.own_layers import Whitening
from stagecraft.trainer_module.settings import TrainSettings

IMAGES = np.random.default_rng(0).normal(size=(20, 9, 9, 3)).cumsum(axis=1).astype(np.float32)


def _functional(scale: float) -> keras.Model:
    images = keras.Input(IMAGES.shape[1:])
    hidden = keras.layers.Rescaling(scale)(images)
    return keras.Model(images, Whitening(name="whitening")(hidden))


def test_a_layer_adapts_to_what_it_is_called_with():
    model, wanted = _functional(0.5), Whitening()
    adapting.adapt(model, lambda: IMAGES)
    wanted.build(IMAGES.shape)
    wanted.adapt(0.5 * IMAGES)
    np.testing.assert_array_equal(model.get_layer("whitening").kernel, wanted.kernel)


def test_loaded_weights_stay_and_nothing_is_read():
    model = _functional(1)
    model.get_layer("whitening").adapt(2 * IMAGES)
    before = model.get_weights()
    adapting.adapt(model, pytest.fail)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_without_such_layers_reads_nothing():
    adapting.adapt(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), pytest.fail)


class Inside(keras.Model):
    """A subclassed model, which does not call all of its layers."""

    def __init__(self, scale: float = 1, unused: bool = False) -> None:
        super().__init__()
        self.whitening, self.scale = Whitening(name="whitening"), scale
        self.unused = [Whitening(name="unused")] if unused else []

    def call(self, inputs):
        return self.whitening(self.scale * inputs)


def _nested() -> keras.Model:
    inner = keras.Sequential([keras.Input(IMAGES.shape[1:]), Whitening(name="whitening")])
    images = keras.Input(IMAGES.shape[1:])
    return keras.Model(images, inner(keras.layers.Rescaling(2)(images)))


def _twice() -> keras.Model:
    images, layer = keras.Input(IMAGES.shape[1:]), Whitening(name="whitening")
    return keras.Model(images, layer(2 * images) + layer(3 * images))


@pytest.mark.parametrize("make", [lambda: Inside(2), _nested, _twice])
def test_a_layer_anywhere_adapts_to_its_first_inputs(make):
    model, wanted = make(), Whitening()
    model(IMAGES)
    adapting.adapt(model, lambda: IMAGES)
    wanted.build(IMAGES.shape)
    wanted.adapt(2 * IMAGES)
    kernels = [each for each in model.variables if each.name == "kernel"]
    np.testing.assert_array_equal(kernels[0], wanted.kernel)
    assert model(IMAGES).shape == (20, 8, 8, 24)


def test_a_layer_that_is_not_called_is_refused():
    model = Inside(unused=True)
    model(IMAGES)
    model.unused[0].build(IMAGES.shape)
    with pytest.raises(ModelRefusedError) as caught:
        adapting.adapt(model, lambda: IMAGES)
    assert (caught.value.setting, caught.value.value) == ("train.model", "unused (Whitening)")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inputs_that_are_not_finite_are_refused(bad):
    images = IMAGES.copy()
    images[3, 2, 1, 0] = bad
    with pytest.raises(ModelRefusedError, match="not finite") as caught:
        adapting.adapt(_functional(1), lambda: images)
    assert caught.value.value == "whitening (Whitening)"


@pytest.mark.parametrize(
    ("shape", "count"),
    [((32, 32, 3), 5000), ((512, 512, 3), 21), ((10_000, 10_000, 3), 1), ((None, None, 3), 5000)],
)
def test_large_pictures_are_few(shape, count):
    assert adapting.count(shape) == count


def test_initial_weights_replace_adapted_ones(tmp_path):
    train = TrainSettings(model="airbench_2_2_2")
    shape = classes(3, (9, 9, 3))
    first = assemble(train, shape, adapt_to=lambda: IMAGES)
    first.save(tmp_path / "first.keras")
    loaded = TrainSettings(model=train.model, initial_weights=str(tmp_path / "first.keras"))
    second = assemble(loaded, shape, adapt_to=lambda: 3 * IMAGES)
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
