from typing import Any

import keras
import pytest
import tensorflow as tf
from model_arguments import classes

from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.parity.rounding_depth import count_nonsmooth_ops, rounding_depths
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
def test_the_way_there_and_back_and_the_weights_own_sum(path, uses):
    settings = _settings()
    found = rounding_depths(assemble(settings.train, classes(10)), settings)
    assert found[path] == CNN + 16 * uses


def test_kinks_are_activations_and_max_pooling():
    settings = _settings()
    assert count_nonsmooth_ops(assemble(settings.train, classes(10)), settings) == 4 + 3
    settings = _settings(model="resnet8")
    resnet = assemble(settings.train, classes(10))
    assert count_nonsmooth_ops(resnet, settings) == 7
    assert count_nonsmooth_ops(resnet, _settings("mixed_bfloat16")) == 0


def test_statistics_sum_over_batch_and_positions():
    images = keras.Input((8, 8, 3))
    hidden = keras.layers.BatchNormalization(name="norm")(images)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    model = keras.Model(images, keras.layers.Dense(4, name="logits")(hidden))
    found = rounding_depths(model, _settings())
    way = 2 * (16 * 64 + 64 + 3)
    assert found["norm/gamma"] == way + 16 * 64
    assert found["logits/kernel"] == way + 16


def test_16_bits_count_layers():
    settings = _settings("mixed_bfloat16")
    found = rounding_depths(
        assemble(settings.train, classes(10), precision="mixed_bfloat16"), settings
    )
    assert set(found.values()) == {2 * 9 + 1}


def test_every_weight_has_one_whatever_the_model_is_made_of():
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
    found = rounding_depths(model, _settings())
    assert found.keys() == {variable.path for variable in model.trainable_variables}
    way = 2 * (5 + 4)
    # What is used in code only has no shape of its own: the largest input's positions are the most.
    assert set(found.values()) == {way + 16}


class Block(keras.layers.Layer):
    """Layers in a layer, as users write them, beside a weight of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conv = keras.layers.Conv2D(4, 3, padding="same", activation="relu")
        self.norm = keras.layers.BatchNormalization()

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(4,), initializer="ones", name="scale")
        self.conv.build(shape)
        self.norm.build((*shape[:-1], 4))

    def call(self, inputs: Any) -> Any:
        return self.norm(self.conv(inputs)) * self.scale


def test_a_layer_of_layers_is_what_they_are():
    images = keras.Input((8, 8, 3))
    hidden = Block(name="block")(images)
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D()(hidden))
    found = rounding_depths(model, _settings())
    # The block, its convolution, its statistics at the block's 64 positions, and the pooling.
    way = 2 * (1 + 27 + 16 * 64 + 64)
    assert found.keys() == {variable.path for variable in model.trainable_variables}
    assert set(found.values()) == {way + 16 * 64}
    assert count_nonsmooth_ops(model, _settings()) == 1


def test_an_attention_is_its_parts():
    tokens = keras.Input((16, 8))
    model = keras.Model(tokens, keras.layers.MultiHeadAttention(2, 4, name="mha")(tokens, tokens))
    found = rounding_depths(model, _settings())
    assert found.keys() == {variable.path for variable in model.trainable_variables}
    # Kernels of shape (8, 2, 4), three times, and (2, 4, 8); softmax and dropout.
    assert found["mha/key/bias"] >= 2 * 4 * 8 + 16 * 16


def test_operations_have_kinks_too():
    images = keras.Input((32, 32, 3))
    hidden = keras.ops.relu(keras.layers.Conv2D(4, 3)(images))
    hidden = keras.ops.max_pool(hidden, 2)
    model = keras.Model(images, keras.layers.Flatten()(hidden))
    assert count_nonsmooth_ops(model, _settings()) == 2


def test_a_models_code_has_kinks_too():
    class Own(keras.Model):
        """As a port from another framework has it."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = keras.layers.Conv2D(4, 3)
            self.head = keras.layers.Dense(2)

        def call(self, images: Any) -> Any:
            hidden = tf.nn.leaky_relu(tf.nn.relu(self.conv(images)))
            return self.head(keras.ops.mean(hidden, (1, 2)))

    model = Own()
    model(keras.ops.ones((2, 32, 32, 3)))
    assert count_nonsmooth_ops(model, _settings()) == 2


def test_normalizations_and_attentions_have_none():
    tokens = keras.Input((16, 8))
    hidden = keras.layers.LayerNormalization()(tokens)
    hidden = keras.layers.MultiHeadAttention(2, 4)(hidden, hidden)
    hidden = keras.layers.GroupNormalization(4)(keras.layers.BatchNormalization()(hidden))
    assert (
        count_nonsmooth_ops(keras.Model(tokens, keras.layers.Dropout(0.5)(hidden)), _settings())
        == 0
    )


def test_a_model_of_nothing_but_weights_is_a_layer():
    class Linear(keras.Model):
        """No layers inside."""

        def build(self, shape: Any) -> None:
            self.matrix = self.add_weight(shape=(shape[-1], 2), name="matrix")

        def call(self, inputs: Any) -> Any:
            return inputs @ self.matrix

    model = Linear()
    model(keras.ops.ones((3, 5)))
    found = rounding_depths(model, _settings())
    assert found.keys() == {variable.path for variable in model.trainable_variables}
    assert (
        rounding_depths(model, _settings("mixed_bfloat16"))[model.trainable_variables[0].path] == 3
    )
