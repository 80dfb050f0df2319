import keras
import numpy as np
import pytest
from keras import layers
from networks_built import built

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models.stages import partition


def _names(model):
    return [point.layer for point in partition.cut_points(model)]


def _data(model, count=3):
    shape = (count, *model.inputs[0].shape[1:])
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _assert_parts_are_the_model(parts, model):
    data = hidden = _data(model)
    for part in parts:
        hidden = part(hidden, training=False)
    np.testing.assert_array_equal(hidden, model(data, training=False))
    held = [id(variable) for part in parts for variable in part.variables]
    assert sorted(held) == sorted({id(variable) for variable in model.variables})


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
    names = _names(model)
    blocks = [f"group{group}_block{block}_" for group in (1, 2, 3) for block in (1, 2, 3)]
    around = [f"{block}{layer}" for block in blocks for layer in ("add", "relu")]
    assert names == ["stem_conv", "stem_norm", "stem_relu", *around, "pool"]


@pytest.mark.parametrize("name", ["resnet20", "cnn", "wide_resnet_10_1"])
def test_the_pieces_are_the_model(name):
    model = built(name)
    paths = [variable.path for variable in model.variables]
    for cuts in (_names(model), _names(model)[2:5:2]):
        parts = partition.split(model, cuts)
        assert [part.layers[-1].name for part in parts] == [*cuts, "logits"]
        _assert_parts_are_the_model(parts, model)
        assert [variable.path for part in parts for variable in part.variables] == paths
    assert [variable.path for variable in model.variables] == paths


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


def test_a_nested_model_is_one_layer(messages):
    inner = keras.Sequential([keras.Input((4,)), _dense("x"), _dense("y")], name="inner")
    model = _functional(lambda value: _dense("b")(inner(_dense("a")(value))))
    assert _names(model) == ["a", "inner"]
    _assert_parts_are_the_model(partition.split(model, ["inner"]), model)
    with messages.raises(UserError):
        partition.split(model, ["x"])


def test_bare_operations_are_places_too():
    model = _functional(lambda value: _dense("b")(keras.ops.relu(_dense("a")(value))))
    first, second = _names(model)
    assert first == "a"
    _assert_parts_are_the_model(partition.split(model, [second]), model)


def test_weights_are_not_used_on_both_sides(messages):
    shared = _dense("shared")

    def body(value):
        for name in ("a", "b"):
            value = _dense(name)(shared(value))
        return _dense("c")(value)

    model = _functional(body)
    assert _names(model) == ["shared", "b"]  # behind its second call
    _assert_parts_are_the_model(partition.split(model, ["shared", "b"]), model)
    with messages.raises(UserError):
        partition.split(model, ["a"])


def test_weights_inside_two_nested_models_are_seen():
    shared = _dense("shared")
    first, second = (keras.Sequential([keras.Input((4,)), shared]) for _ in range(2))
    assert _names(_functional(lambda value: _dense("b")(second(_dense("a")(first(value)))))) == [
        second.name
    ]


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

    assert _names(_functional(body)) == ["a", "b"]


@pytest.mark.parametrize(
    ("model", "stages", "cuts"),
    [
        ("residual", 2, "inner"),
        ("residual", 2, "last"),
        ("residual", 2, "firts"),
        ("residual", 2, "elsewhere"),
        ("abc", 3, "b, a"),
        ("abc", 3, "a,a"),
        ("abc", 3, "a"),
        ("a", 2, "a"),
    ],
)
def test_names_that_are_no_cut_points(model, stages, cuts, messages):
    with messages.raises(UserError) as caught:
        partition.named_cuts(_residual() if model == "residual" else _chain(*model), stages, cuts)
    assert caught.value.setting == "parallel.cuts"


def test_more_stages_than_there_can_be(messages):
    model = _chain("a", "b", "c")
    assert partition.all_cuts(model, 3) == ["a", "b"]
    with messages.raises(UserError) as caught:
        partition.all_cuts(model, 4)
    assert (caught.value.setting, caught.value.value) == ("parallel.stages", 4)


def _two_outputs():
    return _functional(lambda value: [_dense("a")(value), _dense("b")(value)])


class _Subclassed(keras.Model):
    def call(self, value):
        return value


class _FunctionalWithCall(keras.Model):
    def __init__(self):
        inputs = keras.Input((4,))
        super().__init__(inputs, _dense("b")(_dense("a")(inputs)))

    def call(self, value):
        return 2 * value


@pytest.mark.parametrize("make", [_Subclassed, _FunctionalWithCall, _two_outputs])
def test_models_that_cannot_be_cut(make, messages):
    model = make()
    assert partition.all_cuts(model, 1) == []
    assert partition.segments(model) == [model]
    with messages.raises(UserError):
        partition.all_cuts(model, 2)


def test_segments_are_as_many_as_the_root_of_the_cut_points():
    model = built("resnet20")
    parts = partition.segments(model)
    assert len(_names(model)) == 22 and len(parts) == 5
    _assert_parts_are_the_model(parts, model)
    sizes = [sum(place.size for place in partition._places(part)[1:]) for part in parts]
    # Group 1 has more than half of the bytes; its blocks are the largest that cannot be cut.
    block = 7 * 32 * 32 * 16 * 4
    assert max(sizes) <= sum(sizes) / 5 + block
    assert partition.segments(_chain("a")) and len(partition.segments(_chain("a", "b"))) == 2
    stage = partition.split(model, ["group2_block1_relu"])[1]
    _assert_parts_are_the_model(partition.segments(stage), stage)
