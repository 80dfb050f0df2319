import pytest
import tensorflow as tf

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.engines.placement_check import (
    Op,
    check_replicas,
    check_stage_replicas,
    recording,
)

DEVICES = {(0, 0, 0): "CPU:0", (0, 1, 0): "CPU:1"}
RIGHT = [
    Op("while/body/replica0_stage0/forward0/conv/Conv2D", "Conv2D", "CPU:0"),
    Op("while/body/replica0_stage1/forward0/dense/MatMul", "MatMul", "CPU:1"),
    Op("gradient_tape/replica0_stage1/forward0/dense/MatMul_1", "MatMul", "CPU:1"),
    Op("gradient_tape/replica0_stage0/forward0/conv/Conv2DBackpropFilter", "Mul", "CPU:0"),
    Op("IteratorGetNext", "IteratorGetNext", "CPU:0"),
]


def test_ops_where_they_should_be():
    check_stage_replicas(RIGHT, DEVICES, backward=DEVICES)
    check_replicas(RIGHT, ["CPU:0", "CPU:1"])


@pytest.mark.parametrize("index", range(4))
def test_a_misplaced_op_is_named(index):
    ops = [*RIGHT]
    ops[index] = ops[index]._replace(device="GPU:7")
    wanted = RIGHT[index].device
    with pytest.raises(
        UserError, match=f"{RIGHT[index].name} .* on GPU:7 instead of {wanted}"
    ) as caught:
        check_stage_replicas(ops, DEVICES, backward=DEVICES)
    assert caught.value.record == RIGHT[index].name


@pytest.mark.parametrize("index", range(4))
def test_a_cell_that_computes_nothing_is_named(index):
    ops = [op for op in RIGHT if op is not RIGHT[index]]
    part, stage = ("forward", "backward")[index // 2], (0, 1, 1, 0)[index]
    with pytest.raises(UserError) as caught:
        check_stage_replicas(ops, DEVICES, backward=DEVICES)
    assert caught.value.record == f"replica 0, stage {stage}"
    assert f"no {part} ops" in str(caught.value)


def test_what_has_nothing_to_train_needs_no_backward_pass():
    check_stage_replicas(RIGHT[:3], DEVICES, backward=[(0, 1, 0)])


def test_a_shard_that_computes_nothing_is_named():
    devices = DEVICES | {(0, 1, 1): "CPU:2"}
    forward = Op("replica0_stage1_shard1/forward0/dense/MatMul", "MatMul", "CPU:2")
    with pytest.raises(UserError) as caught:
        check_stage_replicas([*RIGHT, forward], devices, backward=devices)
    assert caught.value.record == "replica 0, stage 1, shard 1"
    with pytest.raises(UserError) as caught:
        misplaced = forward._replace(device="CPU:1")
        check_stage_replicas([*RIGHT, misplaced], devices, backward=DEVICES)
    assert caught.value.record == forward.name


def test_a_few_of_many_are_shown():
    ops = [op._replace(device="CPU:4") for op in RIGHT[:4]]
    with pytest.raises(UserError, match="and 1 more"):
        check_stage_replicas(ops, DEVICES, backward=DEVICES)


def test_replicas_that_compute_no_gradients():
    with pytest.raises(UserError, match="no backward ops") as caught:
        check_replicas(RIGHT, ["CPU:0", "CPU:1", "CPU:2"])
    assert caught.value.record == "CPU:2"
    with pytest.raises(UserError, match="on CPU:1 instead of CPU:0"):
        check_replicas(RIGHT, ["CPU:0"])


def test_records_what_is_first_called_in_the_block_and_nothing_after():
    def function(name: str) -> None:
        @tf.function
        def compute(value: tf.Tensor) -> tf.Tensor:
            with tf.name_scope(name):
                return tf.nn.softplus(value)

        compute(tf.constant(1.0))

    seen = []
    function("before")
    for name in ("first", "between", "second"):
        if name == "between":
            function(name)
            continue
        with recording() as ops:
            function(name)
        seen.append([op.name for op in ops if op.kind == "Softplus"])
    assert seen == [["first/Softplus"], ["second/Softplus"]]
