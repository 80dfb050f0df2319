"""Each rule: the divided layer computes what the whole layer computes, in float64."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest
from comparing import compare, ways

from stagecraft.trainer_module.models.layers.random_state import floatx

pytestmark = pytest.mark.slow

layers = keras.layers


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    with floatx("float64"):
        yield
    keras.config.set_dtype_policy(before)


def model(shape: tuple[int, ...], *call: Callable[[Any], Any], dtype: str = "float64") -> Any:
    tensor = inputs = keras.Input(shape, dtype=dtype)
    for each in call:
        tensor = each(tensor)
    return keras.Model(inputs, tensor)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("activation", [None, "gelu", "softmax"])
@pytest.mark.parametrize("bias", [True, False])
def test_dense_by_columns_and_rows(count, activation, bias):
    first = layers.Dense(40, activation, use_bias=bias, name="up")
    second = layers.Dense(38, activation, use_bias=bias, name="down")
    shards = compare(model((35,), first, second), count)
    second_way = "columns" if activation == "softmax" else "rows"
    assert ways(shards) == {"up": "columns", "down": second_way}


@pytest.mark.parametrize(
    ("kind", "shape"), [("Conv1D", (9, 24)), ("Conv2D", (6, 6, 24)), ("Conv3D", (4, 4, 4, 24))]
)
def test_convolutions(kind, shape):
    make = getattr(layers, kind)
    between = [layers.BatchNormalization(name="norm"), layers.ReLU()]
    between.append(getattr(layers, kind.replace("Conv", "SpatialDropout"))(0.5))
    first = make(25, 3, padding="same", dilation_rate=2, name="first")
    second = make(21, 2, strides=2, activation="silu", name="second")
    shards = compare(model(shape, first, *between, second), 2)
    assert ways(shards) == {"first": "columns", "norm": "channels", "second": "rows"}


def test_a_causal_convolution():
    causal = {"kernel_size": 3, "padding": "causal"}
    first = layers.Conv1D(40, **causal, name="first")
    shards = compare(model((9, 24), first, layers.Conv1D(30, **causal, name="second")), 3)
    assert ways(shards) == {"first": "columns", "second": "rows"}


@pytest.mark.parametrize("kind", ["Conv1DTranspose", "Conv2DTranspose"])
def test_transposed_convolutions(kind):
    make = getattr(layers, kind)
    shape = (5,) * int(kind[4]) + (24,)
    first = make(26, 3, strides=2, name="first")
    shards = compare(model(shape, first, make(22, 3, padding="same", name="second")), 2)
    assert ways(shards) == {"first": "columns", "second": "rows"}


@pytest.mark.parametrize(
    ("equation", "shape", "axes", "output", "axis"),
    [
        ("abc,cd->abd", (7, 32), "d", (None, 40), 1),
        ("...x,xy->...y", (7, 32), "y", (40,), 1),
        ("abc,cde->abde", (7, 32), "de", (None, 5, 10), 2),
        ("abcd,cde->abe", (4, 6, 8), "e", (None, 40), 2),
        ("abc,bcd->abd", (7, 32), None, (7, 10), 2),
        ("abc,cd->abd", (7, 32), "b", (7, 40), 0),  # by rows: the bias has not the last axis
    ],
)
def test_einsum_dense(equation, shape, axes, output, axis):
    layer = layers.EinsumDense(equation, output, activation="tanh", bias_axes=axes, name="einsum")
    shards = compare(model(shape, layer), 2)
    assert shards.ways()["einsum"].splits["kernel"].axis == axis


@pytest.mark.parametrize("equation", ["abc,cd->abd", "...x,xy->...y"])
def test_einsum_dense_after_columns(equation):
    shape = (41,) if equation.startswith("...") else (None, 41)
    down = layers.EinsumDense(
        equation, shape, bias_axes=equation[-1], activation="relu", name="down"
    )
    shards = compare(model((7, 32), layers.Dense(48, name="up"), down), 3)
    assert ways(shards) == {"up": "columns", "down": "rows"}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention(dropout, bias, causal):
    inputs = keras.Input((6, 30), dtype="float64")
    layer = layers.MultiHeadAttention(5, 7, value_dim=4, dropout=dropout, use_bias=bias, name="at")
    outputs = layer(inputs, inputs, use_causal_mask=causal)
    shards = compare(keras.Model(inputs, outputs), 2)
    assert ways(shards) == {"at": "heads"}
    assert shards.ways()["at"].splits["query/kernel"].sizes == (3, 2)


def test_attention_between_two_sequences_with_scores_and_another_width():
    query, value = keras.Input((6, 30), dtype="float64"), keras.Input((4, 20), dtype="float64")
    layer = layers.MultiHeadAttention(4, 8, output_shape=17, name="at")
    outputs = layer(query, value, return_attention_scores=True)
    shards = compare(keras.Model([query, value], outputs), 3)
    assert ways(shards) == {"at": "heads"}


def test_attention_with_a_mask():
    ids = keras.Input((6,), dtype="int32")
    hidden = layers.Embedding(9, 130, mask_zero=True, name="table")(ids)
    hidden = layers.MultiHeadAttention(4, 8, name="at")(hidden, hidden)
    shards = compare(keras.Model(ids, layers.LSTM(3)(hidden)), 2)
    assert ways(shards) == {"table": "columns", "at": "heads"}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_grouped_queries(dropout):
    inputs = keras.Input((6, 30), dtype="float64")
    layer = layers.GroupQueryAttention(6, 8, 4, dropout=dropout, name="at")
    shards = compare(keras.Model(inputs, layer(inputs, inputs)), 3)
    assert ways(shards) == {"at": "heads"}
    assert shards.ways()["at"].splits["query/kernel"].sizes == (4, 2, 2)
    assert shards.ways()["at"].splits["key/kernel"].sizes == (2, 1, 1)


def test_too_few_heads_are_divided_inside():
    inputs = keras.Input((6, 30), dtype="float64")
    layer = layers.MultiHeadAttention(2, 24, name="at")
    shards = compare(keras.Model(inputs, layer(inputs, inputs)), 3)
    assert "at" not in ways(shards)
    assert "at/query" in ways(shards)
    assert shards.reasons.keys() == {"at"}


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "GroupQueryAttention"])
@pytest.mark.parametrize("what", ["an activity regularizer", "a LoRA adapter"])
def test_projections_that_smaller_layers_would_not_have_are_divided_by_themselves(kind, what):
    inputs = keras.Input((6, 40), dtype="float64")
    sizes = {"MultiHeadAttention": (4, 10), "GroupQueryAttention": (10, 4, 2)}[kind]
    regularizer = "l2" if "regularizer" in what else None
    layer = getattr(layers, kind)(*sizes, activity_regularizer=regularizer, name="at")
    network = keras.Model(inputs, layers.Dense(40, name="last")(layer(inputs, inputs)))
    if regularizer is None:
        network.get_layer("at")._query_dense.enable_lora(2)
    shards = compare(network, 2)
    assert shards.reasons["at"] == f"has {what}"
    assert any(path.startswith("at/") for path in ways(shards))


class OwnProjection(layers.EinsumDense):
    """In the place of a projection of Keras."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        return 2 * super().call(inputs, training)


@pytest.mark.parametrize("is_class", [True, False])
def test_a_projection_of_a_user(is_class):
    inputs = keras.Input((6, 40), dtype="float64")
    layer = layers.MultiHeadAttention(4, 10, dropout=0.1, name="at")
    network = keras.Model(inputs, layers.Dense(60, name="last")(layer(inputs, inputs)))
    query = layer._query_dense
    if is_class:
        query.__class__ = OwnProjection
    else:
        own = query.call
        query.call = lambda inputs, training=None: 2 * own(inputs)
    shards = compare(network, 2)
    assert shards.reasons == (
        {"at": "has an inner layer query, which is not Keras's"} if is_class else {}
    )
    assert ways(shards).keys() == {"at/key", "at/value", "at/attention_output", "last"}


def test_attention_with_a_mask_for_each_head():
    inputs, mask = keras.Input((6, 30), dtype="float64"), keras.Input((4, 6, 6), dtype="float64")
    outputs = layers.MultiHeadAttention(4, 9, name="at")(inputs, inputs, attention_mask=mask > 0)
    shards = compare(keras.Model([inputs, mask], outputs), 2)
    assert "at" not in ways(shards)
    assert "at/query" in ways(shards)


@pytest.mark.parametrize(("width", "way"), [(5, "columns"), (2, "rows")])
def test_embedding(width, way):
    table = layers.Embedding(700, width, name="table")
    shards = compare(model((8,), table, layers.Flatten(), dtype="int64"), 3)
    assert ways(shards) == {"table": way}


@pytest.mark.parametrize("width", [5, 2])
def test_negative_ids(width):
    ids = keras.Input((8,), dtype="int64")
    compare(keras.Model(ids, layers.Embedding(700, width, name="table")(ids - 9)), 3)


class OwnNoise(layers.GaussianNoise):
    """Draws as its base."""


BETWEEN: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "dropout": lambda: layers.Dropout(0.4),
    "noise shape": lambda: layers.Dropout(0.4, noise_shape=(None, 1, 33)),
    "gaussian dropout": lambda: layers.GaussianDropout(0.4),
    "gaussian noise": lambda: layers.GaussianNoise(0.4),
    "a subclass of noise": lambda: OwnNoise(0.4),
    "spatial dropout": lambda: layers.SpatialDropout1D(0.4),
    "alpha dropout": lambda: layers.AlphaDropout(0.4),
    "leaky relu": layers.LeakyReLU,
    "gelu": lambda: layers.Activation("gelu"),
    "softmax": lambda: layers.Activation("softmax"),
    "layer norm": layers.LayerNormalization,
    "average": lambda: layers.GlobalAveragePooling1D(keepdims=True),
    "up-sampling": layers.UpSampling1D,
    "padding": layers.ZeroPadding1D,
    "permute": lambda: layers.Permute((2, 1)),
    "relu op": lambda: keras.ops.relu,
    "silu op": lambda: keras.ops.silu,
    "tanh op": lambda: keras.ops.tanh,
    "times 2": lambda: lambda x: x * 2,
    "concatenate": lambda: lambda x: keras.ops.concatenate([x, x], -1),
    "add": lambda: lambda x: layers.Add()([x, layers.ReLU()(x)]),
    "multiply": lambda: lambda x: layers.Multiply()([x, layers.LayerNormalization()(x)]),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_stands_between_two_divided_layers(name):
    first, second = layers.Dense(33, name="first"), layers.Dense(39, name="second")
    shards = compare(model((30, 35), first, BETWEEN[name](), second), 2)
    assert ways(shards).keys() >= {"first", "second"}


def test_a_layer_that_is_called_twice():
    shared = layers.Dense(40, activation="relu", name="shared")
    others = [layers.Dense(30, name="last"), layers.Dense(40)]
    shards = compare(model((40,), shared, shared, *others), 3)
    assert ways(shards)["shared"] == "columns"


def test_what_another_layer_assigns():
    wrapped = layers.SpectralNormalization(layers.Conv2D(48, 3, name="inner"), name="spectral")
    shards = compare(model((6, 6, 8), wrapped), 2)
    assert ways(shards) == {"spectral/inner": "columns"}


def test_a_layer_inside_of_a_wrapper():
    shards = compare(model((5, 40), layers.TimeDistributed(layers.Dense(40, name="inner"))), 2)
    assert [*ways(shards).values()] == ["columns"]


class Gated(layers.Layer):
    """A user's block, with layers inside."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = layers.Dense(50, activation="sigmoid", name="gate")
        self.up = layers.Dense(50, name="up")
        self.down = layers.Dense(35, name="down")

    def call(self, inputs: Any) -> Any:
        return inputs + self.down(self.gate(inputs) * self.up(inputs))


def test_layers_inside_of_a_users_layer():
    shards = compare(model((35,), Gated(name="block")), 2)
    assert ways(shards) == {"block/gate": "columns", "block/up": "columns", "block/down": "rows"}


PRODUCTS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "silu": (
        lambda gate, up: keras.activations.silu(gate) * up,
        "columns",
    ),  # a gradient of its own
    "gelu": (lambda gate, up: keras.activations.gelu(gate, approximate=True) * up, "rows"),
    "sum": (lambda gate, up: 2 * gate + up / 3, "rows"),
    "whole": (lambda gate, up: gate * keras.ops.mean(up, axis=-1, keepdims=True), "columns"),
    "stopped": (lambda gate, up: keras.ops.stop_gradient(gate) * up, "columns"),
    "a variable": (lambda gate, up: gate * up * keras.ops.sum(up), "columns"),
}


class Product(layers.Layer):
    """A gated feed-forward layer whose activation is a function of the user."""

    def __init__(self, product: Callable[[Any, Any], Any]) -> None:
        super().__init__(name="block")
        self.product = product
        self.gate, self.up = layers.Dense(51, name="gate"), layers.Dense(51, name="up")
        self.down = layers.Dense(35, name="down")

    def call(self, inputs: Any) -> Any:
        return inputs + self.down(self.product(self.gate(inputs), self.up(inputs)))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_two_divided_tensors(name):
    product, way = PRODUCTS[name]
    shards = compare(model((35,), Product(product)), 2)
    assert ways(shards)["block/down"] == way


class Activated(Product):
    """As in KerasHub: the activation is an attribute."""

    def __init__(self) -> None:
        super().__init__(lambda gate, up: self.activation(gate) * up)
        self.activation = keras.activations.get("silu")


def test_an_activation_of_a_users_layer():
    assert ways(compare(model((35,), Activated()), 2))["block/down"] == "rows"


class Averaged(layers.Layer):
    """Has a layer that only inference calls."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.often = layers.Dense(40, name="often")
        self.later = layers.Dense(40, name="later")

    def build(self, shape: Any) -> None:
        self.often.build(shape)
        self.later.build(shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.often(inputs) + (0.0 if training else self.later(inputs))


def test_a_layer_that_only_inference_calls_stays_whole():
    shards = compare(model((40,), Averaged(name="both"), layers.Dense(90, name="last")), 2)
    assert ways(shards).keys() == {"both/often", "last"}


class Largest(keras.regularizers.Regularizer):
    """Not a sum over slices."""

    def __call__(self, weight: Any) -> Any:
        return keras.ops.max(keras.ops.abs(weight))


@pytest.mark.parametrize("regularizer", ["l2", "L1L2", Largest])
def test_regularizers(regularizer):
    own = regularizer if isinstance(regularizer, str) else regularizer()
    dense = layers.Dense(40, kernel_regularizer=own, bias_regularizer="l2", name="dense")
    shards = compare(model((40,), dense, layers.ActivityRegularization(l2=0.1)), 2)
    assert ways(shards) == {"dense": "columns"}


def test_a_constraint_keeps_the_layer_whole():
    first = layers.Dense(40, kernel_constraint="max_norm", name="first")
    second = layers.Dense(40, kernel_constraint="non_neg", name="second")
    shards = compare(model((40,), first, second), 2)
    assert ways(shards) == {"second": "columns"}
    assert shards.reasons.keys() == {"first"}


def test_frozen_layers():
    network = model((40,), layers.Dense(40, name="first"), layers.Dense(40, name="second"))
    network.get_layer("first").trainable = False
    assert len(ways(compare(network, 2))) == 2


def test_activations_of_what_all_shards_have():
    """A tensor and two activations of it are inputs of divided layers."""
    given = keras.Input((40,))
    inner = keras.layers.LayerNormalization()(given)
    active = keras.ops.relu(inner)
    ends = [inner, active, keras.ops.tanh(active), keras.ops.sigmoid(given)]
    ends = [layers.Dense(44, name=f"dense{number}")(each) for number, each in enumerate(ends)]
    for options in ({}, {"remat": True}, {"jit": True}):
        shards = compare(keras.Model(given, [*ends, active]), 3, **options)
        assert len(ways(shards)) == 4


@pytest.mark.parametrize("jit", [pytest.param(False, marks=pytest.mark.full), True])
@pytest.mark.parametrize("remat", [pytest.param(False, marks=pytest.mark.full), True])
def test_remat_and_jit(remat, jit):
    network = model(
        (40,),
        layers.Dense(44, activation="gelu", name="a"),
        layers.BatchNormalization(),
        layers.Dropout(0.2),
        layers.Dense(42, name="b"),
        layers.LayerNormalization(),
        layers.Dense(44, activation="relu", name="c"),
        layers.Dense(33, name="d"),
    )
    shards = compare(network, 2, remat=remat, jit=jit)
    assert ways(shards).keys() >= {"a", "b", "c", "d"}
