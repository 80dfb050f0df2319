"""Which weights of a model are matrices, and which feed an output."""

import keras
import pytest

from stagecraft.trainer_module.models import matrices, variable_patterns
from stagecraft.trainer_module.models.layers.own_layers import TiedEmbedding
from stagecraft.trainer_module.models.matrices import Matrix

layers = keras.layers


@pytest.fixture(autouse=True)
def _fresh_names():
    keras.utils.clear_session()


def marked(model):
    """Path -> matrix."""
    matrices.mark(model)
    return {weight.path: matrices.of(weight) for weight in model.weights}


def feeding(model):
    """Paths of the kernels of output layers."""
    return {path for path, found in marked(model).items() if found and found.feeds_output}


def chain(given, *steps):
    for step in steps:
        given = step(given)
    return given


class Experts(layers.Layer):
    """A kernel of each expert, named as KerasHub names them."""

    def build(self, shape):
        self.gate = self.add_weight(shape=(2, *shape[1:], 3), name="gate_dense")
        self.bias = self.add_weight(shape=(2, 1, 3), name="gate_bias")


def test_each_expert_has_a_matrix_which_decays():
    layer = Experts(name="experts")
    layer.build((None, 4))
    assert matrices.of(layer.gate) == Matrix(outputs=(2,), separate=(0,))
    assert variable_patterns.is_kernel(layer.gate)
    assert matrices.of(layer.bias) is None and not variable_patterns.is_kernel(layer.bias)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (layers.Dense(3), (4,), {"kernel": (1,), "bias": None}),
        (layers.Conv2D(3, 2), (4, 4, 5), {"kernel": (3,), "bias": None}),
        (layers.Conv2DTranspose(3, 2), (4, 4, 5), {"kernel": (2,), "bias": None}),
        (layers.DepthwiseConv2D(2), (4, 4, 5), {"kernel": None, "bias": None}),
        (
            layers.SeparableConv1D(3, 2),
            (4, 5),
            {"depthwise_kernel": None, "pointwise_kernel": (2,), "bias": None},
        ),
        (layers.LSTM(3), (4, 5), {"kernel": (1,), "recurrent_kernel": (1,), "bias": None}),
        (layers.Embedding(9, 3), (4,), {"embeddings": None}),
        (layers.GroupNormalization(2), (4,), {"gamma": None, "beta": None}),
        (layers.EinsumDense("abc,cde->abde", (None, 2, 3)), (4, 5), {"kernel": (1, 2)}),
        (layers.EinsumDense("abde,dec->abc", (None, 7)), (4, 2, 3), {"kernel": (2,)}),
        (layers.EinsumDense("...x,xy->...y", 3), (4, 5), {"kernel": (1,)}),
        (layers.EinsumDense("ab,b->ab", 5), (5,), {"kernel": None}),
    ],
)
def test_axes_of_the_outputs(layer, shape, expected):
    hidden = chain(keras.Input(shape), layer)
    model = keras.Model(hidden._keras_history[0].input, layers.Dense(2, name="head")(hidden))
    found = {
        path.rpartition("/")[2]: matrix and matrix.outputs
        for path, matrix in marked(model).items()
        if not path.startswith("head/")
    }
    assert found == expected


def test_an_axis_of_inputs_and_outputs_has_a_matrix_for_each_index():
    given = keras.Input((4, 5))
    experts = layers.EinsumDense("bei,eio->beo", (4, 3), name="experts")(given)
    found = marked(keras.Model(given, layers.Dense(2)(layers.Flatten()(experts))))
    assert found["experts/kernel"] == Matrix(outputs=(2,), separate=(0,))


def test_attention_reads_the_heads_with_the_outputs():
    given = keras.Input((6, 8))
    attended = layers.MultiHeadAttention(2, 4, name="attention")(given, given)
    found = marked(keras.Model(given, layers.Dense(2)(attended)))
    for part in ("query", "key", "value"):
        assert found[f"attention/{part}/kernel"] == Matrix(outputs=(1, 2))
    assert found["attention/attention_output/kernel"] == Matrix(outputs=(2,))


def test_output_layers_are_found_through_layers_without_matrices():
    given = keras.Input((4,))
    hidden = layers.Dense(5, name="hidden")(given)
    head = chain(hidden, layers.Dense(3, name="head"), layers.BatchNormalization())
    other = layers.Dense(3, name="other")(hidden)
    total = chain(layers.Add()([head, other]), layers.Softmax())
    model = keras.Model(given, [total, layers.Dense(1, name="second")(hidden)])
    assert feeding(model) == {"head/kernel", "other/kernel", "second/kernel"}


def test_the_output_layer_of_an_inner_model():
    inner = keras.Sequential(
        [keras.Input((5,)), layers.Dense(4, name="body"), layers.Dense(3, name="head")],
        name="inner",
    )
    given = keras.Input((4,))
    model = keras.Model(given, inner(layers.Dense(5, name="first")(given)))
    assert feeding(model) == {"inner/head/kernel"}


def test_logits_of_an_embedding_leave_all_kernels_hidden():
    given = keras.Input((4,), dtype="int32")
    tied = TiedEmbedding(9, 5)
    hidden = layers.Dense(5, name="hidden")(tied(given))
    assert feeding(keras.Model(given, tied(hidden, reverse=True))) == set()


def test_a_frozen_output_layer_is_still_the_output_layer():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, name="body"), layers.Dense(3, name="head")],
        name="net",
    )
    model.get_layer("head").trainable = False
    assert feeding(model) == {"net/head/kernel"}


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = layers.Dense(4, name="body")
        self.head = layers.Dense(3, name="head")
        self.norm = layers.BatchNormalization()

    def call(self, inputs):
        return self.norm(self.head(self.body(inputs)))


def test_without_a_graph_it_is_the_last_layer_with_a_matrix():
    model = Subclassed()
    model(keras.ops.zeros((2, 4)))
    [path] = feeding(model)
    assert path.endswith("head/kernel")


def test_a_copy_has_the_same_matrix():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="head")])
    matrices.mark(model)
    kernel = model.get_layer("head").kernel
    copy = keras.Variable(kernel.value, name="kernel")
    assert not matrices.of(copy).feeds_output
    matrices.copy(kernel, copy)
    assert matrices.of(copy).feeds_output
    assert matrices.excluded(copy, None) and not matrices.excluded(copy, ())
