"""Columns with several values, from each form of a list."""

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.tables import columns
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Crossed,
    Hashed,
    Identity,
    Numeric,
    Vocabulary,
)
from stagecraft.trainer_module.data.tasks.tables.dates import Date
from stagecraft.trainer_module.data.tasks.tables.lists import MultiHot, Sequence
from stagecraft.trainer_module.data.tasks.task import Served
from stagecraft.trainer_module.models import build_model

FEATURES = "task.args.features"
NAN = float("nan")
PLAIN = Numeric(normalizer="none", missing_indicator=True)


def forms(rows, dtype):
    """The ragged and the sparse form."""
    ragged = tf.ragged.constant(rows, dtype, ragged_rank=1)
    return ragged, ragged.to_sparse()


def made(column, raw):
    return {name: each.numpy().tolist() for name, each in column.result("t", {"t": raw}).items()}


def test_which_ids_a_list_has():
    column = MultiHot(of=Identity(4))
    for raw in forms([[1, 2, 1], [], [3, 9, -1]], tf.int64):
        assert made(column, raw) == {"t": [[0, 1, 1, 0], [0] * 4, [0, 0, 0, 1]]}
    assert made(column, tf.constant([[1, 2]], tf.int64)) == {"t": [[0, 1, 1, 0]]}
    assert made(column, tf.constant([3], tf.int64)) == {"t": [[0, 0, 0, 1]]}
    assert made(column, tf.zeros([0, 2], tf.int64)) == {"t": []}
    assert column.lengths("t") == {"t": 4} and column.inputs("t") == {"t": None}


def test_parts_of_a_text():
    column = MultiHot(of=Identity(4), separator=";")
    found = made(column, tf.constant(["1; 2", "", ";3;", " "]))
    assert found == {"t": [[0, 1, 1, 0], [0] * 4, [0, 0, 0, 1], [0] * 4]}
    # CsvExampleGen makes a number of a column whose cells have one each.
    assert made(column, tf.constant([3], tf.int64)) == {"t": [[0, 0, 0, 1]]}


@pytest.mark.parametrize(
    ("keep", "values", "missing"),
    [
        ("last", [[2, 3, 4], [0, 0, 0], [0, 0, 5]], [[0, 0, 0], [1, 1, 1], [1, 1, 0]]),
        ("first", [[1, 2, 3], [0, 0, 0], [0, 5, 0]], [[0, 0, 0], [1, 1, 1], [1, 0, 1]]),
    ],
)
def test_numbers_in_their_order(keep, values, missing):
    column = Sequence(of=PLAIN, length=3, keep=keep)
    for raw in forms([[1, 2, 3, 4], [], [NAN, 5]], tf.float32):
        assert made(column, raw) == {"t": values, "t_missing": missing}
    assert column.lengths("t") == {"t": 3, "t_missing": 3}


def test_a_list_of_any_length_ends_with_its_last_value():
    """As in a request, whose lists are as long as the longest one."""
    column = Sequence(of=PLAIN, length=3)
    rows = [[1, 2, NAN], [NAN, 3, NAN], [NAN, NAN, NAN], [4, NAN, 5]]
    expected = [[0, 1, 2], [0, 0, 3], [0, 0, 0], [4, 0, 5]]
    for raw in forms(rows, tf.float32):
        assert made(column, raw)["t"] == expected
    fixed = made(column, tf.constant(rows, tf.float32))
    assert fixed["t"][:2] == [[1, 2, 0], [0, 3, 0]]
    [texts, _] = forms([["b", "", "b", ""]], tf.string)
    assert made(Sequence(of=Hashed(1), length=4), texts) == {"t": [[1, 0, 1, 0]]}


@pytest.mark.parametrize("form", [tf.io.VarLenFeature, tf.io.RaggedFeature])
def test_a_request_is_transformed_as_training_is(form):
    task = Regression({"t": Sequence(of=PLAIN, length=3)}, "y")
    served = Served(
        lambda raw: task.columns["t"].result("t", raw),
        None,
        None,
        {"t": form(tf.float32)},
        None,
        "",
    )
    function, _ = task.plain_signatures(served)["serving_columns"]
    found = function(t=tf.constant([[1, 2, NAN], [1, 2, 3], [NAN, 5, NAN]]))
    assert found["t"].numpy().tolist() == [[0, 1, 2], [1, 2, 3], [0, 0, 5]]


def test_ids_in_their_order():
    column = Sequence(of=Identity(4), length=3)
    for raw in forms([[0, 9, 2], [], [1]], tf.int64):
        assert made(column, raw) == {"t": [[0, 4, 2], [4, 4, 4], [4, 4, 1]]}


def test_dates_in_their_order():
    column = Sequence(of=Date(numbers=[], categories=["month", "day"]), length=2)
    [raw, _] = forms([["2024-02-29", "2024-12-24"], ["", "2024-01-01"]], tf.string)
    assert made(column, raw) == {"t_month": [[1, 11], [12, 0]], "t_day": [[28, 23], [31, 0]]}


def test_numbers_in_a_text():
    column = Sequence(of=Numeric(normalizer="none"), length=3, separator="|")
    found = made(column, tf.constant(["1| -2.5e1|.5", "", "7||"]))
    np.testing.assert_array_equal(found["t"], [[1, -25, 0.5], [0, 0, 0], [7, 0, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="the column t "):
        made(column, tf.constant(["1|one"]))
    [check] = column.value_checks("t")
    assert check.accepts(tf.constant(["1|2", "1|one", "|"])).numpy().tolist() == [True, False, True]
    assert (check.feature, check.setting) == ("t", f"{FEATURES}.t.separator")


def test_checks_of_parts():
    column = MultiHot(of=Vocabulary(), separator=";")
    assert not list(column.value_checks("t"))
    column = Sequence(of=Date(), length=2, separator=";", source="s")
    [check] = column.value_checks("t")
    found = check.accepts(tf.constant(["2024-01-01;", "2024-01-01; 2024-13-01"]))
    assert (found.numpy().tolist(), check.feature) == ([True, False], "s")


@pytest.mark.parametrize(
    ("kind", "arguments", "setting"),
    [
        (MultiHot, {}, "of"),
        (MultiHot, {"of": Numeric()}, "of"),
        (MultiHot, {"of": Hashed(source="s")}, "of"),
        (Sequence, {"of": Crossed(["a", "b"])}, "of"),
        (Sequence, {"of": Sequence(of=Numeric())}, "of"),
        (Sequence, {"of": Numeric(), "length": 1}, "length"),
        (Sequence, {"of": Numeric(), "keep": "middle"}, "keep"),
        (Sequence, {"of": Numeric(), "separator": ""}, "separator"),
        (Sequence, {"of": Numeric(), "separator": 3}, "separator"),
    ],
)
def test_wrong_arguments(kind, arguments, setting):
    with pytest.raises(SettingError) as caught:
        kind(**arguments)
    assert caught.value.setting == f"task.args: {setting}"


def test_yaml_names_the_kind_of_a_value():
    found = columns.column("t", {"kind": "sequence", "of": {"kind": "hashed", "buckets": 5}})
    assert found == Sequence(of=Hashed(5))
    with pytest.raises(SettingError) as caught:
        columns.column("t", {"kind": "sequence", "of": "text"})
    assert caught.value.setting == f"{FEATURES}.t.of"


def test_lists_of_lists_are_refused():
    raw = tf.ragged.constant([[[1.0], [2.0]]])
    with pytest.raises(UserError) as caught:
        Sequence(of=Numeric()).result("t", {"t": raw})
    assert caught.value.record == "t"


def test_a_column_of_one_value_takes_a_ragged_feature():
    [raw, _] = forms([[1], [], [3]], tf.int64)
    assert made(Identity(4), raw) == {"t": [[1], [4], [3]]}


@pytest.mark.parametrize("model", ["linear", "dnn_8", "wide_deep_8"])
def test_families_take_lists(model):
    task = Regression(
        {
            "x": "numeric",
            "tags": MultiHot(of=Hashed(5)),
            "steps": Sequence(of=Hashed(7), length=4),
            "past": Sequence(of=PLAIN, length=3),
        },
        "y",
    )
    arguments = task.sample_arguments
    assert arguments["lengths"] == {"tags": 5, "steps": 4, "past": 3, "past_missing": 3}
    built = build_model.build(model, arguments, task)
    inputs, _ = task.noise(arguments, 3, np.random.default_rng(0))
    assert {name: each.shape[1:] for name, each in inputs.items()} == {
        name: spec.shape for name, spec in task.input_specs(arguments).items()
    }
    assert built(inputs).shape == (3, 1)
    assert task.list_features == ["past", "steps", "tags"]
