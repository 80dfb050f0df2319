"""How many additions a gradient goes through."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from stagecraft.trainer_module.assemble import assemble
from stagecraft.trainer_module.parity.lengths import kinks, lengths
from stagecraft.trainer_module.settings import TrainingSettings


def _settings(precision: str = "float32", **train: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {"train": {"batch_size": 16, **train}, "parallel": {"precision": precision}}
    )


# Fan-ins of the convolutions and the dense layers; 1 for each of three poolings and the flattening.
CNN = 2 * (27 + 288 + 576 + 2048 + 128 + 3 + 1)


@pytest.mark.parametrize(
    ("path", "uses"),
    [("block1_conv/kernel", 32 * 32), ("block3_conv/bias", 8 * 8), ("logits/kernel", 1)],
)
def test_the_way_there_and_back_and_the_weights_own_sum(path: str, uses: int) -> None:
    settings = _settings()
    found = lengths(assemble(settings.train, 10), settings)
    assert found[path] == CNN + 16 * uses


def test_kinks_are_activations_and_max_pooling() -> None:
    settings = _settings()
    assert kinks(assemble(settings.train, 10), settings) == 4 + 3
    resnet = _settings(model="resnet20")
    assert kinks(assemble(resnet.train, 10), resnet) == 19
    assert kinks(assemble(resnet.train, 10), _settings("mixed_bfloat16")) == 0


def test_statistics_sum_over_batch_and_positions() -> None:
    images = keras.Input((8, 8, 3))
    hidden = keras.layers.BatchNormalization(name="norm")(images)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    model = keras.Model(images, keras.layers.Dense(4, name="logits")(hidden))
    found = lengths(model, _settings())
    way = 2 * (16 * 64 + 64 + 3)
    assert found["norm/gamma"] == way + 16 * 64
    assert found["logits/kernel"] == way + 16


def test_16_bits_count_layers() -> None:
    settings = _settings("mixed_bfloat16")
    found = lengths(assemble(settings.train, 10, precision="mixed_bfloat16"), settings)
    assert set(found.values()) == {2 * 9 + 1}


def test_every_weight_has_one_whatever_the_model_is_made_of() -> None:
    class Scaled(keras.Model):
        """A weight of its own, and a model inside."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(2)])
            self.scale = self.add_weight(shape=(2,), name="scale")

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs) * self.scale

    model = Scaled()
    model(keras.ops.ones((3, 5)))
    found = lengths(model, _settings())
    assert found.keys() == {variable.path for variable in model.trainable_variables}
    way = 2 * (5 + 4)
    # What is used in code only has no shape of its own: an image's positions are the most.
    assert sorted(set(found.values())) == [way + 16, way + 16 * 32 * 32]
