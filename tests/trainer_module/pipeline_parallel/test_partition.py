import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from networks_built import built

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.data.tasks.task import Spec
from stagecraft.trainer_module.models import costs, model_graph, structural_keys
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.pipeline_parallel.partition import Balance, balance
from stagecraft.trainer_module.pipeline_parallel.stage import EqualSegments, Stage


def _names(model, plain=False):
    return [point.layer for point in partition.cut_points(model) if point.plain or not plain]


def _assert_parts_are_the_model(parts, model):
    specs = model_graph.specs(model_graph.of(model), 3)
    data = hidden = model_graph.noise(specs, np.random.default_rng(0))
    for part in parts:
        hidden = part(hidden, training=False)
    expected = model(data, training=False)
    tf.nest.map_structure(np.testing.assert_array_equal, hidden, expected)
    held = {id(variable) for part in parts for variable in part.variables}
    assert held == {id(variable) for variable in model.variables}


def _dense(name):
    return layers.Dense(4, name=name)


def _functional(body, shape=(4,)):
    inputs = keras.Input(shape)
    return keras.Model(inputs, body(inputs), name="model")


def _chain(*names):
    return keras.Sequential([keras.Input((4,)), *map(_dense, names)], name="model")


def _residual():
    def body(hidden):
        first = _dense("first")(hidden)
        hidden = _dense("inner")(first)
        hidden = layers.Add(name="add")([hidden, first])
        return _dense("last")(hidden)

    return _functional(body)


def test_resnet20_can_be_cut_around_its_blocks():
    model = built("resnet20")
    names = _names(model, plain=True)
    blocks = [f"group{group}_block{block}_" for group in (1, 2, 3) for block in (1, 2, 3)]
    around = [f"{block}{layer}" for block in blocks for layer in ("add", "relu")]
    assert names == ["stem_conv", "stem_norm", "stem_relu", *around, "pool"]
    assert partition.all_cuts(model, 8) == [names]
    inside = partition.all_cuts(model, 2, ["group1_block1_conv1"])
    assert inside == [_names(model)] and len(inside[0]) > 60


@pytest.mark.parametrize("name", ["resnet20", "cnn", "wide_resnet_10_1"])
def test_the_pieces_are_the_model(name):
    model = built(name)
    paths = [variable.path for variable in model.variables]
    names = _names(model, plain=True)
    for cuts in (names, names[2:5:2]):
        parts = partition.split(model, cuts)
        assert [part.layers[-1].name for part in parts] == [*cuts, "logits"]
        _assert_parts_are_the_model(parts, model)
        assert [variable.path for part in parts for variable in part.variables] == paths
    assert [variable.path for variable in model.variables] == paths
    _assert_parts_are_the_model(partition.split(model, _names(model)), model)


def test_no_cuts_is_the_model_itself():
    model = _chain("a", "b")
    assert partition.split(model, []) == [model]


def test_a_sequential_model_can_be_cut_behind_each_layer():
    model = _chain("a", "b", "c")
    assert _names(model) == ["a", "b"]
    _assert_parts_are_the_model(partition.split(model, ["a"]), model)


def test_frozen_layers_stay_frozen():
    model = _chain("a", "b")
    model.get_layer("b").trainable = False
    parts = partition.split(model, ["a"])
    assert [len(part.trainable_variables) for part in parts] == [2, 0]


def test_a_model_inside_is_cut_between_its_layers():
    inner = keras.Sequential([keras.Input((4,)), _dense("x"), _dense("y")], name="inner")
    outer = _functional(lambda value: _dense("b")(inner(_dense("a")(value))))
    model = _functional(lambda value: _dense("c")(outer(value)))
    assert _names(model) == ["a", "x", "y", "b"]
    _assert_parts_are_the_model(partition.split(model, ["x"]), model)
    _assert_parts_are_the_model(partition.split(model, ["inner", "model"]), model)
    assert partition.named_cuts(model, 3, ["x", "inner"]) == ["x", "y"]
    assert partition.named_cuts(model, 3, ["inner", "b"]) == ["y", "b"]


def test_masks_of_a_model_inside_are_seen():
    inner = keras.Sequential([keras.Input((3, 4)), _dense("x"), layers.LSTM(4, name="lstm")])

    def body(value):
        hidden = layers.Embedding(9, 4, mask_zero=True, name="embedding")(value)
        return _dense("a")(inner(layers.Dropout(0.0, name="dropout")(hidden)))

    model = _functional(body, (3,))
    # The mask goes from the embedding to the LSTM, through layers of two models.
    assert not {"embedding", "dropout", "x"} & {*_names(model)}
    assert "a" not in _names(model)


def _two_models(same_names):
    def tower(number):
        names = ["x", "y"] if same_names else [f"x{number}", f"y{number}"]
        return keras.Sequential([keras.Input((4,)), *map(_dense, names)], name=f"tower{number}")

    return _functional(lambda value: tower(1)(tower(0)(value)))


def _frozen_inside():
    inner = keras.Sequential([keras.Input((4,)), layers.BatchNormalization(name="norm")])
    return _functional(lambda value: _dense("b")(inner(value, training=False)))


def _trainable_inside():
    inner = keras.Sequential([keras.Input((4,)), _dense("x"), _dense("y")], name="inner")
    inner.trainable = False
    inner.layers[0].trainable = True  # Keras trains no layer of a model that is frozen
    return _functional(lambda value: _dense("b")(inner(value)))


def _own_call():
    class Doubled(keras.Model):
        def call(self, inputs, training=None, mask=None):
            return 2 * super().call(inputs, training=training)

    given = keras.Input((4,))
    inner = Doubled(given, _dense("x")(given), name="inner")
    return _functional(lambda value: _dense("b")(inner(value)))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: _two_models(True), ["x", "y"]),
        (lambda: _two_models(False), ["x0", "y0", "x1"]),
        (_frozen_inside, ["sequential"]),
        (_trainable_inside, ["inner"]),
        (_own_call, ["inner"]),
    ],
)
def test_a_model_inside_that_does_more_stays_whole(make, names):
    keras.utils.clear_session()
    model = make()
    assert [name.partition("_")[0] for name in _names(model)] == names
    _assert_parts_are_the_model(partition.split(model, _names(model)), model)


def test_bare_operations_are_places_too():
    model = _functional(lambda value: _dense("b")(keras.ops.relu(_dense("a")(value))))
    first, second = _names(model)
    assert first == "a"
    _assert_parts_are_the_model(partition.split(model, [second]), model)


def test_weights_may_be_used_on_both_sides():
    shared = _dense("shared")

    def body(value):
        for name in ("a", "b"):
            value = _dense(name)(shared(value))
        return _dense("c")(value)

    model = _functional(body)
    assert _names(model, plain=True) == ["shared", "b"]  # behind its second call
    assert _names(model) == ["a", "shared", "b"]
    _assert_parts_are_the_model(partition.split(model, ["a", "b"]), model)


def test_weights_inside_two_nested_models_are_seen():
    shared = _dense("shared")
    first, second = (keras.Sequential([keras.Input((4,)), shared]) for _ in range(2))
    model = _functional(lambda value: _dense("b")(second(_dense("a")(first(value)))))
    assert _names(model, plain=True) == ["shared"]  # behind its second call
    assert _names(model) == ["a", "shared"]


@pytest.mark.parametrize(
    "layer", [layers.BatchNormalization, lambda **name: layers.Dropout(0.5, **name)]
)
def test_state_is_not_used_on_both_sides(layer):
    shared = layer(name="shared")

    def body(value):
        for name in ("a", "b"):
            value = _dense(name)(shared(value))
        return _dense("c")(value)

    model = _functional(body)
    assert _names(model) == ["shared", "b"]
    with pytest.raises(UserError):
        partition.split(model, ["a"])


def test_frozen_weights_may_be_used_on_both_sides():
    shared = layers.Dense(4, name="shared", trainable=False)
    model = _functional(lambda value: _dense("b")(shared(_dense("a")(shared(value)))))
    assert _names(model) == ["a", "shared"]


def test_a_layer_without_weights_may_be_used_on_both_sides():
    relu = layers.ReLU(name="relu")

    def body(value):
        for name in ("a", "b"):
            value = relu(_dense(name)(value))
        return _dense("c")(value)

    model = _functional(body)
    assert _names(model) == ["a", "b", "relu"]
    for cut in _names(model):
        _assert_parts_are_the_model(partition.split(model, [cut]), model)


# GlobalAveragePooling1D takes the mask: a skip connection.
@pytest.mark.parametrize("last", [layers.GlobalAveragePooling1D, layers.Flatten])
def test_a_mask_does_not_go_from_stage_to_stage(last):
    def body(value):
        hidden = layers.Embedding(5, 4, mask_zero=True, name="embedding")(value)
        return _dense("last")(last(name="flat")(_dense("dense")(hidden)))

    model = _functional(body, shape=(3,))
    assert _names(model) == ["flat"]
    with pytest.raises(UserError, match="cut after 'flat'"):
        partition.split(model, ["dense"])


def test_a_layer_of_two_outputs():
    def body(value):
        left, right = keras.ops.split(_dense("a")(value), 2, axis=1)
        return _dense("c")(layers.Concatenate(name="b")([left, right]))

    model = _functional(body)
    first, second, third = _names(model)
    assert (first, third) == ("a", "b")
    parts = partition.split(model, [second])
    assert [len(part.outputs) for part in parts] == [2, 1]
    _assert_parts_are_the_model(parts, model)


@pytest.mark.parametrize(
    ("model", "stages", "cuts"),
    [
        ("residual", 2, "last"),
        ("residual", 2, "firts"),
        ("residual", 2, "elsewhere"),
        ("abc", 3, "b, a"),
        ("abc", 3, "a,a"),
        ("abc", 3, "a"),
        ("a", 2, "a"),
    ],
)
def test_names_that_are_no_cut_points(model, stages, cuts):
    given = _residual() if model == "residual" else _chain(*model)
    with pytest.raises(UserError) as caught:
        partition.named_cuts(given, stages, cuts.replace(" ", "").split(","))
    assert caught.value.setting == "parallel.cuts"


def test_more_stages_than_there_can_be():
    model = _chain("a", "b", "c")
    assert partition.all_cuts(model, 3) == [["a", "b"]]
    with pytest.raises(UserError) as caught:
        partition.all_cuts(model, 4)
    assert (caught.value.setting, caught.value.value) == ("parallel.stages", 4)


class _Subclassed(keras.Model):
    def call(self, value):
        return value


class _FunctionalWithCall(keras.Model):
    def __init__(self):
        inputs = keras.Input((4,))
        super().__init__(inputs, _dense("b")(_dense("a")(inputs)))

    def call(self, value):
        return 2 * value


@pytest.mark.parametrize("make", [_Subclassed, _FunctionalWithCall])
def test_models_that_cannot_be_cut(make):
    model = make()
    assert partition.all_cuts(model, 1) == [[]]
    assert partition.segments(model) == [model]
    with pytest.raises(UserError, match=r"keras\.Model"):
        partition.all_cuts(model, 2)


def test_segments_are_as_many_as_the_root_of_the_cut_points():
    model = built("resnet20")
    parts = partition.segments(model)
    assert len(_names(model, plain=True)) == 22 and len(parts) == 5
    _assert_parts_are_the_model(parts, model)
    sizes = [sum(place.size for place in partition._places(part)[1:]) for part in parts]
    # Group 1 has more than half of the bytes; its blocks are the largest that cannot be cut.
    block = 7 * 32 * 32 * 16 * 4
    assert max(sizes) <= sum(sizes) / 5 + block
    assert partition.segments(_chain("a")) and len(partition.segments(_chain("a", "b"))) == 2
    stage = partition.split(model, ["group2_block1_relu"])[1]
    _assert_parts_are_the_model(partition.segments(stage), stage)


def _blocks(count, activation="gelu"):
    def body(value):
        for number in range(count):
            inner = _dense(f"in{number}")(layers.LayerNormalization(name=f"norm{number}")(value))
            inner = layers.Activation(activation, name=f"act{number}")(inner)
            value = layers.Add(name=f"add{number}")([value, _dense(f"out{number}")(inner)])
        return value

    return body


def test_equal_blocks_are_found():
    model = _functional(lambda value: _dense("last")(_blocks(3)(_dense("first")(value))))
    assert partition.block_cuts(model) == ["first", "add0", "add1", "add2"]
    _assert_parts_are_the_model(partition.split(model, partition.block_cuts(model)), model)
    model = _functional(lambda value: _blocks(2)(_dense("first")(value)))
    assert partition.block_cuts(model) == ["first", "add0"]


def test_equal_blocks_may_be_single_layers_with_a_mask():
    given = [keras.Input((4, 6), name="x"), keras.Input((4,), dtype="bool", name="mask")]
    hidden, mask = given
    for number in range(5):
        attention = layers.MultiHeadAttention(2, 3, name=f"attention{number}")
        hidden = attention(hidden, hidden, query_mask=mask)
    model = keras.Model(given, layers.Dense(3, name="last")(hidden))
    cuts = [f"attention{number}" for number in range(4)]
    assert partition.block_cuts(model) == cuts
    # The first block has the model's inputs, and the last one carries no mask.
    equal = EqualSegments(model, "CPU")
    parts = partition.split(model, ["attention1"])
    keys = [structural_keys.model_key(each) for part in parts for each in equal.split(part)]
    assert [keys.index(key) for key in keys] == [0, 1, 1, 1, 4]


def test_a_sequential_model_that_stays_whole_is_a_stage():
    model = _chain("a", "b")
    (segment,) = Stage(model, equal=EqualSegments(model, "CPU")).segments
    assert segment.model is model and segment.equal.count == 1


def test_where_no_block_ends():
    def complex_numbers(value):
        rotated = keras.ops.cast(layers.Dense(8)(value), "complex64")
        for _ in range(3):
            value = _chained(4)(value)
            rotated = keras.ops.multiply(rotated, rotated)
            value = keras.ops.add(value, keras.ops.real(rotated))
        return value

    def assigned(value):
        for _ in range(4):
            own = layers.Dense(8)
            value = _chained(3)(layers.SpectralNormalization(own)(value))
        return own(value)

    cuts = partition.block_cuts(_functional(assigned))
    assert len(cuts) == 3 and partition.block_cuts(_functional(complex_numbers)) == []


def _chained(count):
    def body(value):
        for _ in range(count):
            value = layers.Dense(8, "tanh")(value)
        return value

    return body


def test_what_is_no_run_of_equal_blocks():
    def of_functions(value):
        for number in range(3):
            value = layers.Lambda(lambda x, n=number: x * n, name=f"times{number}")(value)
            value = _blocks(1)(value) if number == 0 else _dense(f"more{number}")(value)
        return value

    assert partition.block_cuts(_functional(of_functions)) == []
    assert partition.block_cuts(_chain("a", "b", "c")) == []  # blocks of one layer
    # Two blocks of four equal layers are large enough; that of the first layer has the input.
    first, second = map("abcdefghi".index, partition.block_cuts(_chain(*"abcdefghi")))
    assert second - first == 4
    assert partition.block_cuts(_Subclassed()) == []


def _u_net():
    def body(value):
        skips, hidden = [], value
        for number in range(2):
            hidden = _dense(f"down{number}")(hidden)
            skips.append(hidden)
            hidden = layers.Activation("tanh", name=f"tanh{number}")(hidden)
        for number in reversed(range(2)):
            hidden = layers.Concatenate(name=f"join{number}")([hidden, skips.pop()])
            hidden = _dense(f"up{number}")(hidden)
        return _dense("last")(hidden)

    return _functional(body)


def test_long_skips_cross_cuts():
    model = _u_net()
    middle = ["tanh0", "down1", "tanh1", "join1", "up1"]
    assert _names(model) == ["down0", *middle, "join0", "up0"]
    assert _names(model, plain=True) == ["down0", "join0", "up0"]
    (plain, outside) = partition.all_cuts(model, 2)
    assert (plain, outside) == (_names(model, plain=True), _names(model))
    for cuts in (middle, ["tanh1"], ["tanh0", "join1"], ["down0", "up1", "join0"]):
        parts = partition.split(model, cuts)
        _assert_parts_are_the_model(parts, model)
        assert [inner for part in parts for inner in partition.segments(part)]
    parts = partition.split(model, ["tanh1", "join1"])
    assert [len(part.outputs) for part in parts] == [3, 2, 1]
    assert model_graph.have_gradients(parts[0], [False]) == [True] * 3
    assert [cost.output_tensors for cost in costs.stage_costs(parts, model_graph.of(model))] == [
        3,
        2,
        1,
    ]
    assert [len(model_graph.computed(part)) for part in parts] == [4, 1, 4]


def _towers():
    words, numbers = (
        keras.Input((3,), dtype="int32", name="words"),
        keras.Input((4,), name="numbers"),
    )
    left = layers.Flatten(name="flat")(layers.Embedding(5, 4, name="embedding")(words))
    right = _dense("right")(numbers)
    joined = _dense("joined")(layers.Concatenate(name="join")([left, right]))
    outputs = {"one": _dense("one")(joined), "other": (_dense("other")(joined), joined)}
    return keras.Model({"words": words, "numbers": numbers}, outputs, name="towers")


def test_inputs_and_outputs_travel():
    model = _towers()
    names = _names(model)
    assert names == ["embedding", "flat", "right", "join", "joined", "one"]
    assert partition.all_cuts(model, 2)[-1] == names
    for cuts in (names, ["flat"], ["flat", "one"]):
        _assert_parts_are_the_model(partition.split(model, cuts), model)
    first, _, third = partition.split(model, ["flat", "one"])
    assert isinstance(first.input, dict) and len(first.outputs) == 2
    numbers, flat = first.outputs if first.outputs[0].shape[1] == 4 else first.outputs[::-1]
    assert (numbers.shape[1], flat.shape[1]) == (4, 12)
    has = model_graph.have_gradients(first, [False, False])
    assert [has[first.outputs.index(each)] for each in (numbers, flat)] == [False, True]
    assert sorted(third.output) == ["one", "other"]


def test_a_skip_from_a_layer_that_is_called_again_does_not_cross():
    shared = _dense("shared")

    def body(value):
        early = shared(value)
        hidden = shared(_dense("b")(_dense("a")(early)))
        return layers.Add(name="add")([hidden, early])

    model = _functional(body)
    assert _names(model) == ["shared"]
    with pytest.raises(UserError, match="crosses"):
        partition.split(model, ["a"])


def test_subclassed_models_know_their_inputs():
    with pytest.raises(LookupError):
        model_graph.of(_Subclassed())
    model = _Subclassed()
    model({"a": np.zeros((2, 3)), "b": np.zeros((2, 4, 1))})
    assert {name: each.shape for name, each in model_graph.of(model).items()} == {
        "a": (None, 3),
        "b": (None, 4, 1),
    }
    model_graph.note(model, (Spec((None,), "int64"), Spec((2,))))
    specs = model_graph.specs(model_graph.of(model), 5, unknown=7)
    assert specs == (tf.TensorSpec((5, 7), "int64"), tf.TensorSpec((5, 2), "float32"))


# --- balance ---


def _by_trying(items, parts):
    """All divisions: the least of the costliest part, by the first cost, then by the second."""
    best = None
    for starts in itertools.combinations(range(1, len(items)), parts - 1):
        bounds = itertools.pairwise([0, *starts, len(items)])
        sums = [np.sum(items[begin:end], axis=0) for begin, end in bounds]
        worst = tuple(np.max(sums, axis=0))
        best = worst if best is None or worst < best else best
    return best


@pytest.mark.parametrize("seed", range(10))
def test_no_division_is_better(seed):
    generator = np.random.default_rng(seed)
    items = generator.integers(0, 6, (9, 2)).tolist()
    for parts in range(1, len(items) + 1):
        starts = balance(items, parts)
        bounds = [0, *starts, len(items)]
        assert len(starts) == parts - 1 and bounds == sorted(set(bounds))
        sums = [np.sum(items[begin:end], axis=0) for begin, end in itertools.pairwise(bounds)]
        assert tuple(np.max(sums, axis=0)) == _by_trying(items, parts)


@pytest.mark.parametrize("seed", range(5))
def test_one_run_gives_all_numbers_of_parts(seed):
    items = np.random.default_rng(seed).integers(0, 6, (9, 2)).tolist()
    every = Balance(items)
    for parts in (5, 9, 1, 3):
        assert every.starts(parts) == balance(items, parts)
        assert every.least(parts) == _by_trying(items, parts)[0]


def lengths(may):
    """Which ranges fit, by part and length."""
    ends, begins = np.arange(5)[:, None], np.arange(4)[None, :]
    return lambda part: may(part, ends - begins)


def test_parts_that_may_not_be_are_not_chosen():
    items = [(1,), (1,), (1,), (3,)]
    assert balance(items, 2) == [3]
    assert balance(items, 2, lengths(lambda part, length: length <= 2)) == [2]
    assert balance(items, 2, lengths(lambda part, length: (length >= 3) | (part == 0))) == [1]
    assert balance(items, 2, lengths(lambda part, length: length == 1)) is None
