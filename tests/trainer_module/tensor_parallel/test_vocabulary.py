"""Ids of a divided vocabulary, and of none."""

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel import vocabulary
from stagecraft.trainer_module.tensor_parallel.group import ShardGroup
from stagecraft.trainer_module.tensor_parallel.split import Split

TABLE = np.arange(1.0, 15.0).reshape(7, 2)
SPLIT = Split(0, (4, 3))


def group() -> ShardGroup:
    return ShardGroup([contextlib.nullcontext] * 2)


def rows(ids: Any) -> np.ndarray:
    slices = [SPLIT.cut(tf.constant(TABLE), shard) for shard in range(2)]
    found = vocabulary.looked_up(group(), tf.constant(ids), slices, SPLIT, tf.float64)
    return np.asarray(found)


def test_negative_ids_count_from_the_end():
    np.testing.assert_array_equal(rows([[0, 6], [-1, -7]]), TABLE[[[0, 6], [-1, -7]]])


@pytest.mark.parametrize("wrong", [7, -8, 900])
def test_an_id_outside_of_the_table_is_no_row_of_zeros(wrong):
    found = rows([[2, wrong]])
    np.testing.assert_array_equal(found[0, 0], TABLE[2])
    assert np.isnan(found[0, 1]).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("wrong", [7, -1])
def test_a_target_that_is_no_class_has_no_finite_loss(wrong, smoothing):
    logits = vocabulary.Logits(group(), tf.split(tf.constant(TABLE.T), [4, 3], axis=1))
    losses = np.asarray(logits.cross_entropy(tf.constant([3, wrong]), tf.float64, smoothing))
    assert np.isfinite(losses[0])
    assert np.isnan(losses[1])
