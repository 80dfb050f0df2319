"""Microbatches share the functions of the stages: same bits, smaller graphs."""

from typing import Any

import driving
import keras
import networks
import numpy as np
import pytest
import tensorflow as tf
from driving import GRID, STAGES, label, rare

from stagecraft.trainer_module.engines import grid_engine, placement_check, replica_pipeline
from stagecraft.trainer_module.pipeline_parallel import partition, stage

REMAT: dict[str, Any] = {"remat": True}
WIDE: dict[str, Any] = {**STAGES, "stages": 2, "shards": 2, "precision": "float64"}


def trained(parallel: dict[str, Any], model: str) -> tuple[Any, list[placement_check.Op]]:
    engine = driving.make(parallel, model, clip_norm=1.0)
    with placement_check.recording() as ops:
        engine._placement_checked.add(0)
        engine.train(driving.feed(engine), 3)
    engine._check_placement(ops)
    return engine, ops


@pytest.mark.parametrize(
    ("parallel", "model"),
    [
        ({**STAGES, "precision": "float64"}, "norm"),
        ({**GRID, "microbatches": 1, "precision": "float64"}, "drop"),
        (WIDE, "sharded:mlp"),
        ({**WIDE, **REMAT}, "sharded:mlp"),
        rare({**GRID, "precision": "mixed_bfloat16"}, "norm"),
        rare({**GRID, "precision": "mixed_float16"}, "norm"),
        rare({**STAGES, **REMAT}, "norm"),
        rare({**GRID, **REMAT}, "drop"),
        rare({**GRID, **REMAT, "microbatch_schedule": "gpipe"}, "drop"),
        rare({**GRID, **REMAT, "accumulate": 2, "microbatches": 2}, "penalised"),
        rare({**GRID, **REMAT, "precision": "mixed_bfloat16"}, "norm"),
        rare({**GRID, **REMAT, "precision": "mixed_float16"}, "norm"),
        rare({**GRID, **REMAT, "precision": "float64"}, "looked_up"),
        rare({**GRID, "precision": "float64"}, "looked_up"),
        rare({**GRID, **REMAT, "stages": 2, "virtual_stages": 2}, "norm"),
        rare({**GRID, "stages": 2, "virtual_stages": 2, "precision": "float64"}, "norm"),
        rare({**WIDE, "replicas": 2, "stages": 1, "microbatches": 1}, "sharded:mlp"),
        rare({**WIDE, "jit": True}, "sharded:mlp"),
        rare({**GRID, "jit": True, "precision": "float64"}, "plain"),
    ],
    ids=label,
)
def test_the_numbers_are_the_same(parallel, model, monkeypatch):
    """The bits where both compute gradients by the same functions; otherwise, sums of gradients
    may have another order."""
    one, ops = trained(parallel, model)
    monkeypatch.setattr(replica_pipeline, "_shares_traces", lambda *_: False)
    other, more = trained(parallel, model)
    if "remat" in parallel:
        driving.assert_same_bits(one.state(), other.state())
    expected = other.state()
    for name, value in one.state().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-15, err_msg=name)
    # The check of placement sees the ops inside the functions.
    inside = {op.kind for op in ops if "PartitionedCall/" in op.name}
    assert inside >= {"MatMul", "BiasAddGrad"}
    assert "jit" in parallel or not [op for op in more if "PartitionedCall/" in op.name]


def test_what_has_no_gradient_has_none(monkeypatch):
    """A function would take zeros for it, and its weights would decay."""
    parallel = {**STAGES, "stages": 2, "precision": "float64"}
    train: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.5}
    names = [
        point.layer
        for point in partition.cut_points(networks.stopped((32, 32, 3), 4))
        if len(point.tensors) == 2 and point.layer.startswith("log")
    ]
    assert names
    states = []
    for shares in (True, False):
        monkeypatch.setattr(replica_pipeline, "_shares_traces", lambda *_, s=shares: s)
        keras.backend.clear_session()
        engine = driving.make({**parallel, "cuts": names[0]}, "stopped", **train)
        before = engine.state()
        engine.train(driving.feed(engine), 3)
        states.append(engine.state())
    one, other = states
    for name, value in other.items():
        np.testing.assert_allclose(one[name], value, rtol=1e-12, atol=1e-15, err_msg=name)
    assert "model/other/kernel" not in driving.differing(before, other)


def test_the_graph_does_not_grow_by_the_layers():
    counts = {}
    for microbatches in (2, 4):
        parallel = {**STAGES, "microbatches": microbatches}
        engine = driving.make(parallel, "norm")
        graph = _graph(engine)
        kinds = [node.op for node in graph.node]
        for function in graph.library.function:
            kinds += [node.op for node in function.node_def]
        counts[microbatches] = kinds.count("Conv2D")
    assert counts[2] == counts[4] > 0


def test_a_call_has_few_edges():
    graph = _graph(driving.make(STAGES, "norm"))
    calls = [
        node
        for function in graph.library.function
        for node in function.node_def
        if "PartitionedCall" in node.op and node.attr["_disable_call_shape_inference"].b
    ]
    assert len(calls) == 6  # the second ones of three stages, forward and back
    assert max(sum(not name.startswith("^") for name in node.input) for node in calls) < 10


@pytest.mark.parametrize(
    ("parallel", "train", "count"),
    [
        # What is before the blocks, a block, and what is after them.
        ({**GRID, "precision": "float64"}, {}, 3),
        # And the last block, after which nothing needs the mask.
        ({**GRID, "precision": "float64"}, {"model": "masked"}, 4),
        rare({**GRID, **REMAT, "precision": "float64"}, {"model": "masked"}, None),
        rare({**GRID, "precision": "mixed_bfloat16"}, {"model": "masked"}, 4),
        # Two cuts are in the middle of blocks.
        rare({**STAGES, "microbatches": 1, "precision": "float64"}, {}, 5),
        rare({**GRID, **REMAT, "precision": "float64"}, {}, None),
        rare({**GRID, "precision": "float64"}, {"frozen": ["dense*", "multi_head_attention*"]}, 3),
    ],
    ids=label,
)
def test_equal_blocks_share_a_function(parallel, train, count, monkeypatch):
    states, traces = [], []
    own = stage.Segment.call

    def call(segment: Any, *args: Any) -> Any:
        if not tf.executing_eagerly():  # not the examination
            traces.append(segment.model.name)
        return own(segment, *args)

    monkeypatch.setattr(stage.Segment, "call", call)
    for shares in (True, False):
        monkeypatch.setattr(grid_engine, "_shares_blocks", lambda parallel, s=shares: s)
        keras.backend.clear_session()
        engine = driving.make(parallel, **{"model": "repeated", **train})
        engine.train(driving.feed(engine), 3)
        states.append(engine.state())
        traces.append("|")
    for name, value in states[1].items():
        np.testing.assert_allclose(states[0][name], value, rtol=1e-12, atol=1e-15, err_msg=name)
    assert count in (None, traces.index("|"))


def _graph(engine: Any) -> Any:
    batches = driving.feed(engine)
    one = tf.constant(1, tf.int64)
    return engine._train_graph.get_concrete_function(batches, one).graph.as_graph_def()


@pytest.mark.parametrize(
    ("changed", "layers", "shares"),
    [
        ({}, 128, True),
        ({}, 127, False),
        ({"jit": True}, 1, True),
        ({"stages": 2, "shards": 2}, 1, True),
        ({"microbatches": 1}, 1000, False),
    ],
)
def test_a_single_pass_and_those_of_a_small_model_have_their_own_ops(
    changed, layers, shares, monkeypatch
):
    monkeypatch.setattr(replica_pipeline, "_LEAST_CALLS", 256)  # zero in all other tests here
    parallel = driving.ParallelSettings(**{**STAGES, **changed})
    assert replica_pipeline._shares_traces(parallel, layers) is shares
