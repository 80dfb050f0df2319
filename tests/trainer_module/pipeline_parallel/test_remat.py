import functools
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.models.layers.dropout import key_layers
from stagecraft.trainer_module.models.layers.random_state import random_scope
from stagecraft.trainer_module.pipeline_parallel.remat import recomputed, recomputed_by_shards
from stagecraft.trainer_module.tensor_parallel import group as groups
from stagecraft.trainer_module.tensor_parallel.group import ShardGroup

COMPILED = pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])


def _layers(value, *weights):
    for weight in weights:
        value = tf.tanh(tf.matmul(value, weight))
    return value


def _gradients(function, *tensors, jit=False):
    """The function's value and the gradients of the sum of its squares."""

    @tf.function(jit_compile=jit)
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = function(*tensors)
            loss = tf.reduce_sum(tf.square(tf.cast(outputs, tf.float64)))
        return outputs, tape.gradient(loss, tensors)

    return tf.nest.map_structure(lambda value: value.numpy(), run(*tensors))


def _numbers(*shapes, dtype=tf.float32):
    generator = np.random.default_rng(0)
    return [tf.cast(generator.normal(size=shape) / 3, dtype) for shape in shapes]


def _assert_equal(first, second):
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)


@COMPILED
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients_are_those_of_the_function(dtype, jit):
    plain, again = _plain_and_recomputed(dtype, jit)
    _assert_equal(again, plain)


@COMPILED
def test_in_bfloat16(jit):
    (value, plain), (value_again, again) = _plain_and_recomputed("bfloat16", jit)
    np.testing.assert_array_equal(value_again, value)
    for first, second in zip(plain, again, strict=True):
        first, second = first.astype(np.float64), second.astype(np.float64)
        # XLA leaves out roundings inside a fusion, and fuses other operations. Six products there
        # and six back, each rounded to 8 bits in one way or the other.
        bound = 12 * 2 * 2**-9 * abs(first).max() if jit else 0
        np.testing.assert_allclose(second, first, rtol=0, atol=bound)


def _plain_and_recomputed(dtype, jit):
    # Each weight has one use: a gradient of several is their sum, and its order another.
    tensors = _numbers((6, 9), *[(9, 9)] * 6, dtype=dtype)
    results = []
    for part in (_layers, recomputed(_layers)):

        def twice(value, *weights, part=part):
            return part(part(value, *weights[:3]), *weights[3:])

        results.append(_gradients(twice, *tensors, jit=jit))
    return results


@COMPILED
def test_a_layer_stack_with_statistics_and_dropout(jit):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(5),
        ]
    )
    key_layers(model, 3)
    trained = model.trainable_variables
    state = [variable.value for variable in model.non_trainable_variables]
    count = len(trained)

    def forward(images, step, positions, *values):
        with random_scope(step, positions):
            outputs, after = model.stateless_call(
                values[:count], values[count:], images, training=True
            )
        return {"outputs": outputs, "state": after}

    images, weights = _numbers((6, 8, 8, 3))[0], [variable.value for variable in trained]
    step, positions = tf.constant(2, tf.int64), tf.range(6, dtype=tf.int64)

    def run(function):
        def outputs(images, *weights):
            result = function(images, step, positions, *weights, *state)
            moved = [tf.reduce_sum(tf.cast(value, tf.float32)) for value in result["state"]]
            return tf.concat([tf.reshape(result["outputs"], [-1]), tf.stack(moved)], axis=0)

        return _gradients(outputs, images, *weights, jit=jit)

    _assert_equal(run(recomputed(forward)), run(forward))


def test_eagerly():
    value, weight = _numbers((6, 9), (9, 9))
    results = []
    for function in (_layers, recomputed(_layers)):
        with tf.GradientTape() as tape:
            tape.watch([value, weight])
            outputs = function(value, weight)
        results.append((outputs, tape.gradient(outputs, [value, weight])))
    _assert_equal(*results)


def test_integers_and_strings_come_and_go():
    @recomputed
    def choose(table, rows, name):
        chosen = tf.gather(tf.tanh(table), rows)
        return chosen, {"rows": rows + 1, "name": tf.strings.join([name, "!"])}

    @tf.function
    def run(table, rows, name):
        with tf.GradientTape() as tape:
            tape.watch(table)
            chosen, others = choose(table, rows, name)
        return chosen, others, tape.gradient(chosen, table)

    (table,) = _numbers((5, 2))
    chosen, others, gradient = run(table, tf.constant([1, 1, 4]), tf.constant("a"))
    np.testing.assert_array_equal(chosen, tf.gather(tf.tanh(table), [1, 1, 4]))
    np.testing.assert_array_equal(others["rows"], [2, 2, 5])
    assert others["name"].numpy() == b"a!"
    assert np.flatnonzero(tf.convert_to_tensor(gradient).numpy().any(axis=1)).tolist() == [1, 4]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_gradient_that_is_not_finite_stays_where_it_is(bad):
    """As without: what the loss scale is judged by."""
    (value,) = _numbers((4, 3))
    incoming = tf.tensor_scatter_nd_update(tf.ones([4, 3]), [[0, 0]], [bad])
    results = []
    for function in (tf.tanh, recomputed(tf.tanh)):
        with tf.GradientTape() as tape:
            tape.watch(value)
            outputs = function(value)
        results.append(tape.gradient(outputs, value, incoming))
    _assert_equal(*results)


def test_grappler_keeps_the_second_computation():
    def count(layers):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tensors = [tf.compat.v1.placeholder(tf.float32, [9, 9]) for _ in range(5)]
            gradients = tf.gradients(tf.square(layers(*tensors)), tensors)
            ran = tf.compat.v1.RunMetadata()
            session.run(
                gradients,
                dict.fromkeys(tensors, np.ones((9, 9))),
                options=tf.compat.v1.RunOptions(output_partition_graphs=True),
                run_metadata=ran,
            )
        return sum(node.op == "Tanh" for graph in ran.partition_graphs for node in graph.node)

    assert count(_layers) == 4
    assert count(recomputed(_layers)) == 8


def test_xla_keeps_the_second_computation():
    def count(layers):
        @tf.function(jit_compile=True)
        def run(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                loss = tf.square(layers(*tensors))
            return tape.gradient(loss, tensors)

        tensors = _numbers(*[(9, 9)] * 5)
        text = run.experimental_get_compiler_ir(*tensors)(stage="optimized_hlo")
        return text.count(" tanh(")

    assert count(_layers) == 4
    assert count(recomputed(_layers)) == 8


MEMORY = """
import sys
import psutil
import tensorflow as tf
from stagecraft.trainer_module.pipeline_parallel.remat import recomputed

def layers(value):
    for _ in range(8):
        value = tf.sin(value)
    return value

part = recomputed(layers) if sys.argv[1] == "recomputed" else layers

@tf.function
def run(value):
    with tf.GradientTape() as tape:
        tape.watch(value)
        outputs = value
        for _ in range(8):
            outputs = part(outputs)
        loss = tf.square(outputs)
    return tf.reduce_sum(tape.gradient(loss, value))

run(tf.ones([1]))
before = psutil.Process().memory_info().rss
run(tf.ones([2**21]))
# Not getrusage, which counts what the parent process had when it forked.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024 - before)
"""


@pytest.mark.slow
def test_less_memory_is_used():
    def megabytes(how):
        command = [sys.executable, "-c", MEMORY, how]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) / 1e6

    # 64 activations of 8 MiB are kept, 537 MB; recomputed, 8 + 8 of them, 134 MB, and the few that
    # are being worked on: half of the first is far from both. (XLA fuses what is done here.)
    assert megabytes("kept") > 500
    assert megabytes("recomputed") < 270


def test_the_second_computation_belongs_to_the_pass_back():
    def group(part: str) -> ShardGroup:
        return ShardGroup([functools.partial(tf.name_scope, f"{part}{n}/") for n in range(2)])

    def divided(inputs: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
        now = groups.current()
        assert now is not None
        products = now.map(lambda _, x, w: tf.sin(x * w), now.copies(inputs), weights)
        return now.total(products)

    with tf.Graph().as_default() as graph:
        tensors = [tf.constant(float(number)) for number in range(3)]
        with groups.active(group("forward")), tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = recomputed_by_shards(divided, [0, 1])(*tensors)
        before = len(graph.get_operations())
        with groups.active(group("backward")):
            gradients = tape.gradient(outputs, tensors)
        later = [op.name for op in graph.get_operations()[before:]]
    assert all(gradient is not None for gradient in gradients)
    assert not [name for name in later if name.startswith("forward")]
    for shard in range(2):
        assert any(name.startswith(f"backward{shard}/Sin") for name in later)
