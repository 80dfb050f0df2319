"""Where the second computation of divided layers runs, and under which name."""

import functools

import tensorflow as tf

from stagecraft.trainer_module.pipeline_parallel.remat import recomputed_by_shards
from stagecraft.trainer_module.tensor_parallel import group as groups
from stagecraft.trainer_module.tensor_parallel.group import ShardGroup


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
