import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from networks_built import built

from stagecraft.trainer_module.models import costs, model_graph
from stagecraft.trainer_module.pipeline_parallel import partition

# In multiplications with addition: the stem, then 18 convolutions of 3 by 3, two of which halve the
# side and so cost half of the others, then the classifier. He et al. 2015 count 41 million.
RESNET20 = 32**2 * 27 * 16 + (6 + 5 + 5) * 32**2 * 9 * 16**2 + 2 * 16**2 * 9 * 16 * 32 + 640


def _single(*stack, shape=(8, 8, 6), dtype="float32"):
    return keras.Sequential([keras.Input(shape, dtype=dtype), *stack])


def _flops(model):
    (cost,) = costs.stage_costs([model], model.inputs[0])
    return cost.flops


@pytest.mark.parametrize(
    ("layer", "products"),
    [
        (layers.Conv2D(5, 3, use_bias=False), 6 * 6 * 9 * 6 * 5),
        (layers.Conv2D(5, 3, strides=2, padding="same", use_bias=False), 4 * 4 * 9 * 6 * 5),
        (layers.Conv2D(4, 3, groups=2, use_bias=False), 6 * 6 * 9 * 3 * 4),
        (layers.Conv2DTranspose(5, 3, strides=3, use_bias=False), 8 * 8 * 9 * 6 * 5),
        (layers.DepthwiseConv2D(3, depth_multiplier=2, use_bias=False), 6 * 6 * 9 * 6 * 2),
        (layers.SeparableConv2D(5, 3, use_bias=False), 6 * 6 * (9 * 6 + 6 * 5)),
        (layers.Dense(7, use_bias=False), 8 * 8 * 6 * 7),
        (layers.EinsumDense("abcd,def->abcef", output_shape=(8, 8, 2, 3)), 8 * 8 * 6 * 2 * 3),
    ],
    ids=lambda value: value.name if isinstance(value, layers.Layer) else "",
)
def test_two_operations_for_a_product_and_its_sum(layer, products):
    assert _flops(_single(layer)) == 2 * products


def test_other_operations_count_elements_and_moves_nothing():
    assert _flops(_single(layers.ReLU())) == 8 * 8 * 6
    assert _flops(_single(layers.Flatten())) == 0


def test_resnet20_is_as_published():
    model = built("resnet20")
    assert RESNET20 == 40_551_040
    flops = _flops(model)
    # Normalisations, activations and additions: a few for each of the 0.3 million activations.
    assert 2 * RESNET20 < flops < 2.05 * RESNET20
    pieces = partition.split(model, partition.all_cuts(model, 2)[0])
    assert sum(cost.flops for cost in costs.stage_costs(pieces, model.inputs[0])) == flops


def test_bytes_of_an_example():
    assert model_graph.tensor_bytes(keras.KerasTensor((None, 3, 4), "float32")) == 48
    assert model_graph.tensor_bytes(keras.KerasTensor((None, None, 4), "bfloat16")) == 8


def test_activations_are_what_gradients_take():
    inputs = keras.Input((4,))
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(8)])
    model = keras.Model(inputs, layers.ReLU()(inner(layers.Dense(6)(inputs))))
    (cost,) = costs.stage_costs([model], inputs)
    assert cost.activation_bytes == 4 * (4 + 6 + 8)  # inputs of the layers; the output of ReLU
    assert (cost.input_bytes, cost.output_bytes) == (16, 32)


def test_kinds_are_by_what_is_computed():
    model = built("resnet20")
    pieces = partition.split(model, partition.all_cuts(model, 2)[0])
    found = costs.stage_costs(pieces, model.inputs[0])
    kinds = {cost.kind: cost for cost in found}
    # Three groups of a block that halves (the first does not) and two that do not, ReLUs between.
    assert len(found) == 23 and len(kinds) == 12
    assert all(kinds[cost.kind].flops == cost.flops for cost in found)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(7, use_bias=False, name="head")

    def call(self, value):
        return self.head(value)


def test_subclassed_stages_and_bare_operations():
    inputs = keras.Input((6,))
    first = keras.Model(inputs, keras.ops.relu(layers.Dense(5, use_bias=False)(inputs)))
    second = Subclassed()
    second(first(np.zeros((1, 6), np.float32)))
    costs_of = costs.stage_costs([first, second], inputs)
    assert [cost.flops for cost in costs_of] == [2 * 6 * 5 + 5, 2 * 5 * 7]
    assert [cost.parameters for cost in costs_of] == [30, 35]
    assert [cost.output_bytes for cost in costs_of] == [20, 28]
    assert [cost.last.rstrip("_0123456789") for cost in costs_of] == ["relu", "head"]
    assert [cost.layers for cost in costs_of] == [2, 1]
    assert (costs_of[1].activation_bytes, costs_of[1].shared_bytes) == (0, 4 * 5)


def test_counting_leaves_the_model_as_it_is():
    model = _single(layers.BatchNormalization())
    before = [variable.numpy() for variable in model.variables]
    _flops(model)
    tf.nest.map_structure(
        np.testing.assert_array_equal, [variable.numpy() for variable in model.variables], before
    )
