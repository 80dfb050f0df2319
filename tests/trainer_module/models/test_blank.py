"""Models without values: what has none, what stays as it is, and what a trace takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras.src.backend.common import global_state

from stagecraft.trainer_module.models import blank


def make():
    given = keras.Input((4,))
    return keras.Model(given, layers.BatchNormalization()(layers.Dense(3)(given)))


def blank_model():
    with blank.scope():
        return make()


def test_a_model_has_shapes_but_no_values():
    model = blank_model()
    assert blank.are_blank(model.variables)
    assert model.count_params() == 4 * 3 + 3 + 4 * 3
    assert not blank.are_blank(make().variables)
    assert not blank.are_blank([])


def test_a_weight_larger_than_any_memory():
    with blank.scope():
        layer = layers.Dense(10**9)
        layer.build((None, 10**9))
    assert layer.kernel.shape == (10**9, 10**9)


def test_one_variable_without_a_value_is_enough():
    assert blank.are_blank([*make().variables, *blank_model().variables])


def test_layers_made_after_the_block_have_values():
    blank_model()
    model = make()
    assert model(np.ones((2, 4), np.float32)).shape == (2, 3)


def test_other_scopes_do_not_give_values_to_blank_models():
    model = blank_model()
    with keras.StatelessScope(initialize_variables=True):
        pass
    assert blank.are_blank(model.variables)


def test_pending_variables_of_an_outer_scope_stay_pending():
    with keras.StatelessScope():
        outer = keras.Variable("ones", shape=(3,))
        with blank.scope():
            inner = keras.Variable("ones", shape=(3,))
        pending = global_state.get_global_attribute("uninitialized_variables")
        assert any(each is outer for each in pending)
        assert not any(each is inner for each in pending)
    assert not blank.are_blank([outer]) and blank.are_blank([inner])


def test_an_error_in_the_block_ends_it():
    before = list(global_state.get_global_attribute("uninitialized_variables", []))
    with pytest.raises(ZeroDivisionError), blank.scope():
        keras.Variable("ones", shape=(3,))
        raise ZeroDivisionError
    after = global_state.get_global_attribute("uninitialized_variables", [])
    assert [id(each) for each in after] == [id(each) for each in before]
    assert not blank.are_blank(make().variables)


def test_a_trace_takes_the_variables_as_inputs():
    model = blank_model()
    specs = tf.TensorSpec((1, 4), "float32")
    found = blank.trace(model.variables, lambda x: model(x, training=False), specs)
    shapes = [tuple(each.shape) for each in found.graph.inputs]
    assert shapes == [(1, 4), *(tuple(each.shape) for each in model.variables)]
    assert found.structured_outputs.shape == (1, 3)
    assert blank.are_blank(model.variables), "the trace gives no values"


def test_a_traced_function_computes_with_given_values():
    model = make()
    specs = tf.TensorSpec((2, 4), "float32")
    found = blank.trace(model.variables, lambda x: model(x, training=False), specs)
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    values = [tf.convert_to_tensor(each.value) for each in model.variables]
    np.testing.assert_array_equal(found(given, values), model(given, training=False))
