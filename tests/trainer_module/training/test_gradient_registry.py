import gc
import weakref
from collections.abc import Callable

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from stagecraft.trainer_module.run_fn import cleaned_gradient_registry, run_fn


@tf.custom_gradient
def doubled(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    return 2.0 * value, lambda upstream: 2.0 * upstream


def _traced() -> weakref.ref:
    function = tf.function(doubled, autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec([])).graph
    return weakref.ref(graph)


def test_a_graph_dies_with_the_last_that_needs_it():
    with cleaned_gradient_registry():
        graph = _traced()
        gc.collect()
        assert graph() is not None  # or there is nothing to mend
    gc.collect()
    assert graph() is None


def test_what_was_there_before_stays():
    function = tf.function(doubled, autograph=False)
    function.get_concrete_function(tf.TensorSpec([]))
    with cleaned_gradient_registry():
        _traced()
    with tf.GradientTape() as tape:
        value = tf.Variable(3.0)
        result = function(value)
    assert tape.gradient(result, value).numpy() == 2.0


@pytest.mark.slow
def test_a_training_leaves_no_graph(make_fn_args, tmp_path):
    def kept() -> set[str]:
        return {name for name in ops.gradient_registry.list() if name.startswith("Custom")}

    before = kept()
    run_fn(make_fn_args(tmp_path, train_model="user_models:tiny", train_steps=2))
    assert kept() == before
