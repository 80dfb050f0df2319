import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch

INPUTS = {"age": np.arange(12.0), "words": np.arange(24).reshape(12, 2)}
NESTS = [np.arange(3), {"a": np.zeros(2), "b": {"c": np.ones(1)}}, (np.zeros(2), np.ones(3))]


@pytest.mark.parametrize("nest", NESTS, ids=["array", "dictionary", "tuple"])
def test_arrays_and_back(nest):
    found = batches.from_arrays("inputs", batches.to_arrays("inputs", nest))
    tf.nest.assert_same_structure(found, nest)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(nest), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_name_that_begins_like_another_is_not_its_part():
    assert set(batches.to_arrays("inputs", INPUTS)) == {"inputs/age", "inputs/words"}
    assert batches.from_arrays("in", {"in/a": 1, "inputs/b": 2}) == {"a": 1}


def test_cut_and_take():
    whole = tf.nest.map_structure(tf.constant, Batch(INPUTS, np.arange(12), np.ones(12)))
    cut = batches.cut(whole, 2, 3, -1)
    part = batches.take(cut, 1, 2)
    assert isinstance(part, Batch)
    np.testing.assert_array_equal(part.inputs["age"], [10, 11])
    np.testing.assert_array_equal(part.inputs["words"], [[20, 21], [22, 23]])
    np.testing.assert_array_equal(part.targets, [10, 11])
    assert int(batches.size(part)) == 2
