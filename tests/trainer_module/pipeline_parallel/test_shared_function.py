"""Functions that a graph contains once: packed tensors, and gradients as a tape computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.pipeline_parallel.shared_function import Packed, Repeated, Shared


def in_graph(function: Any) -> Any:
    return tf.function(function, autograph=False)()


def test_packed_values_come_back():
    groups = [("", [0, 3]), ("CPU:0", [1, 2]), ("CPU:0", [])]

    def run() -> Any:
        sparse = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]), tf.constant([4, 3]))
        values = [tf.constant(2), tf.constant([1.5]), None, sparse]
        packed = Packed.of(values, groups)
        assert len(packed.variants) == 2
        assert [len(each.variants) for each in packed.split(groups)] == [1, 1, 0]
        return packed.values()

    number, vector, nothing, sparse = in_graph(run)
    assert number.numpy() == 2
    assert vector.numpy().tolist() == [1.5]
    assert nothing is None
    np.testing.assert_equal(
        tf.convert_to_tensor(sparse).numpy(), [[0] * 3, [2] * 3, *[[0] * 3] * 2]
    )


def test_a_pack_of_nothing_is_empty():
    def run() -> Any:
        packed = Packed.of([None, None], [("", [0, 1])])
        assert packed.variants == []
        assert packed.split([("", [0, 1])])[0].variants == []
        return packed.values()

    assert in_graph(run) == [None, None]


TABLE = tf.reshape(tf.range(12.0), [4, 3])
KERNEL = tf.reshape(tf.range(6.0), [3, 2]) / 5


def computed(weights: Any, ids: Any, scale: Any) -> Any:
    table, kernel, unused = weights
    rows = tf.nn.embedding_lookup(table, ids)
    outputs = tf.tanh(rows @ kernel) * scale
    return {"outputs": outputs, "integers": ids + tf.cast(tf.size(unused), ids.dtype)}


@pytest.mark.parametrize("fills", [False, True])
def test_the_gradient_is_that_of_a_tape(fills):
    ids, scale = tf.constant([3, 1, 3]), tf.constant(0.5)
    weights = [TABLE, KERNEL, tf.ones([2])]
    with tf.GradientTape() as tape:
        tape.watch([*weights, scale])
        outputs = computed(weights, ids, scale)["outputs"]
        loss = tf.reduce_sum(outputs**2)
    expected = tape.gradient(loss, [*weights, scale])
    traces = []

    def function(own: Any, ids: Any, scale: Any) -> Any:
        traces.append(1)
        return computed(own, ids, scale), [1]  # by the order of tf.nest: integers, outputs

    shared = Shared(function, "CPU", fills=fills)
    groups = [("", [0, 1, 2])]

    def run() -> Any:
        packed = Packed.of(weights, groups)
        found = []
        for _ in range(3):
            call = shared(packed, ids, scale)
            gradients = call.gradients([2 * call.results["outputs"]], groups, [0, 1])
            assert gradients.has_gradient == [True, True, False]
            assert gradients.arguments[0] is None
            found.append(([*gradients.weights.values(), gradients.arguments[1]], call.results))
        return found

    for gradients, results in in_graph(run):
        assert isinstance(gradients[0], tf.IndexedSlices) is not fills
        nothing = gradients.pop(2)
        assert nothing.numpy().tolist() == [0, 0] if fills else nothing is None
        for one, other in zip(gradients, [*expected[:2], expected[3]], strict=True):
            np.testing.assert_allclose(*map(tf.convert_to_tensor, (one, other)), rtol=1e-6)
        np.testing.assert_allclose(results["outputs"], outputs)
        np.testing.assert_equal(results["integers"].numpy(), ids.numpy() + 2)
    assert len(traces) == 1


def test_other_shapes_have_a_trace_of_their_own():
    shared = Shared(lambda own, given: ([own[0] * given], [0]), "CPU")

    def run() -> Any:
        packed = Packed.of([tf.constant(3.0)], [("", [0])])
        sizes = tf.constant([1.0, 2.0]), tf.constant([4.0])
        return [shared(packed, each, keep=False).results[0] for each in (*sizes, *sizes)]

    assert [each.numpy().tolist() for each in in_graph(run)] == [[3, 6], [12]] * 2


def test_a_tape_does_not_record_a_repeated_call():
    double = Repeated(lambda given: [2 * given])

    def run() -> Any:
        given = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(given)
            made = [double([given])[0] for _ in range(2)]
        kinds = [each.op.node_def.attr["_disable_call_shape_inference"].b for each in made]
        assert kinds == [False, True]
        assert made[1].shape == []
        assert tape.gradient(made, given) is None
        return made

    assert [each.numpy() for each in in_graph(run)] == [6, 6]


def test_what_takes_tensors_of_the_graph_around_it_is_open():
    def run() -> Any:
        outside = tf.random.uniform([])
        packed = Packed.of([tf.constant(1.0)], [("", [0])])
        taking = Shared(lambda own, given: ([own[0] * given * outside], [0]), "CPU")
        closed = Shared(lambda own, given: ([own[0] * given], [0]), "CPU")
        given = tf.constant(2.0)
        assert not taking.trace(packed, given).is_closed
        assert closed.trace(packed, given).is_closed
        return given

    in_graph(run)


def test_a_gradient_takes_no_value_for_its_shape():
    """That of ``a + b`` of unknown sizes has to know both shapes, and neither value."""

    def added(weights: Any, rows: Any) -> Any:
        return rows @ weights[0] + weights[1], [0]

    def run() -> Any:
        rows = tf.zeros([tf.random.uniform([], 2, 3, tf.int32), 5])
        assert rows.shape[0] is None
        packed = Packed.of([tf.eye(5), tf.ones([5])], [("", [0, 1])])
        call = Shared(added, "CPU")(packed, rows)
        assert call.kept is not None
        floats = [each for each in call.kept.specs.values() if each.dtype.is_floating]
        assert [each.shape.as_list() for each in floats if each.shape.rank == 2].count(
            [None, 5]
        ) == 1  # rows, for the gradient of the matrix
        return call.gradients([tf.ones_like(call.results)], [("", [0, 1])], [0]).arguments

    [found] = in_graph(run)
    np.testing.assert_equal(found.numpy(), np.ones([2, 5]))
