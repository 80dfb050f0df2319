import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.optimization.make_optimizer import is_kernel, make_optimizer
from stagecraft.trainer_module.settings import TrainSettings


@pytest.fixture
def model() -> keras.Model:
    """Every kind of weight, with values far from 0, and names that only look like others."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, name="beta_conv"),
            keras.layers.BatchNormalization(name="kernel_norm"),
            keras.layers.SeparableConv2D(4, 3),
            keras.layers.GroupNormalization(2),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    for variable in model.variables:
        variable.assign(tf.fill(variable.shape, 2.0))
    return model


@pytest.mark.parametrize(("name", "decay"), [("sgd", 0.25), ("adamw", 0.25), ("sgd", 0.0)])
def test_weight_decay_is_on_kernels_only(model, name, decay):
    settings = TrainSettings(optimizer=name, learning_rate=1.0, weight_decay=decay)
    optimizer = make_optimizer(settings, model.trainable_variables)

    @tf.function
    def step(rate: tf.Tensor) -> None:
        optimizer.learning_rate.assign(rate)
        zeros = [tf.zeros(variable.shape) for variable in model.trainable_variables]
        optimizer.apply(zeros, model.trainable_variables)

    step(tf.constant(0.5))  # Not the rate that it was made with.
    for variable in model.trainable_variables:
        kernel = variable.path.split("/")[-1].endswith("kernel")
        np.testing.assert_array_equal(variable, 2.0 * (1 - 0.5 * decay) if kernel else 2.0)
    decayed = {v.path.split("/")[-1] for v in model.trainable_variables if is_kernel(v)}
    assert decayed == {"kernel", "depthwise_kernel", "pointwise_kernel"}


def test_sgd_is_nesterovs():
    """Sutskever et al. 2013, section 3.1, in the form with the gradient at the weights."""
    variable = keras.Variable(1.0, name="kernel")
    settings = TrainSettings(learning_rate=0.125, momentum=0.5, weight_decay=0)
    optimizer = make_optimizer(settings, [variable])
    weight, velocity = 1.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        optimizer.apply([tf.constant(gradient)], [variable])
        velocity = 0.5 * velocity - 0.125 * gradient
        weight += 0.5 * velocity - 0.125 * gradient
        assert float(variable) == weight  # Powers of two: exact.


def test_slots_are_made_at_once(model):
    optimizer = make_optimizer(TrainSettings(optimizer="adamw"), model.trainable_variables)
    # Two moments for each variable, beside the step and the rate.
    assert len(optimizer.variables) == 2 * len(model.trainable_variables) + 2
