"""With remat, microbatches share the functions of the stages: same bits, smaller graphs."""

from typing import Any

import driving
import pytest
import tensorflow as tf
from driving import GRID, STAGES, label, slow

from stagecraft.trainer_module.engines import grid, placement


def shares(engine: Any) -> set[bool]:
    return {isinstance(each._training, type(tf.function(len))) for each in engine._stages}


def trained(parallel: dict[str, Any], model: str) -> tuple[Any, list[placement.Op]]:
    engine = driving.make(parallel, model, clip_norm=1.0)
    with placement.recording() as ops:
        engine._placement_checked.add(0)
        engine.train(driving.feed(engine), 3)
    engine._check_placement(ops)
    return engine, ops


@pytest.mark.parametrize(
    ("parallel", "model"),
    [
        (STAGES, "norm"),
        slow(GRID, "drop"),
        slow({**GRID, "schedule": "gpipe"}, "drop"),
        slow({**GRID, "accumulate": 2, "microbatches": 2}, "penalised"),
        slow({**GRID, "precision": "mixed_bfloat16"}, "norm"),
        slow({**GRID, "precision": "mixed_float16"}, "norm"),
        slow({**GRID, "precision": "float64"}, "looked_up"),
        slow({**STAGES, "stages": 2, "virtual_stages": 2}, "norm"),
    ],
    ids=label,
)
def test_the_bits_are_the_same(parallel, model, monkeypatch):
    parallel = {**parallel, "remat": True}
    one, ops = trained(parallel, model)
    assert shares(one) == {True}
    monkeypatch.setattr(grid, "_reuses", lambda parallel: False)
    other, more = trained(parallel, model)
    assert shares(other) == {False}
    driving.assert_same_bits(one.state(), other.state())
    # The check of placement sees the ops inside the functions.
    inside = {op.kind for op in ops if "PartitionedCall/" in op.name}
    assert {"MatMul", "BiasAddGrad"} <= inside
    assert not [op for op in more if "PartitionedCall/" in op.name]


def test_the_graph_does_not_grow_by_the_layers():
    counts = {}
    for microbatches in (2, 4):
        parallel = {**STAGES, "microbatches": microbatches, "remat": True}
        engine = driving.make(parallel, "norm")
        graph = _graph(engine)
        kinds = [node.op for node in graph.node]
        for function in graph.library.function:
            kinds += [node.op for node in function.node_def]
        counts[microbatches] = kinds.count("Conv2D")
    assert counts[2] == counts[4] > 0


def _graph(engine: Any) -> Any:
    batches = driving.feed(engine)
    one = tf.constant(1, tf.int64)
    return engine._train_graph.get_concrete_function(batches, one).graph.as_graph_def()


@pytest.mark.parametrize(
    "other",
    [{"microbatches": 1}, {"remat": False}, {"timeline_step": 2}, {"jit": True}, {"shards": 2}],
    ids=label,
)
def test_where_each_call_has_its_own_ops(other):
    asked = {**STAGES, "remat": True}
    assert grid._reuses(driving.ParallelSettings(**asked)) is True
    assert grid._reuses(driving.ParallelSettings(**{**asked, **other})) is False
