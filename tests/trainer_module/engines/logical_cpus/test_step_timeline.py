"""A real step under the profiler: every pass is seen, in the order of the schedule."""

from __future__ import annotations

import itertools
from typing import Any

import driving
import pytest
from driving import GRID, MIRRORED, ONE, STAGES, label, slow

from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.training.monitoring import timeline


@pytest.mark.parametrize(
    "parallel",
    [
        GRID,
        slow({**GRID, "accumulate": 2}),
        {**STAGES, "stages": 2, "accumulate": 2, "schedule": "gpipe"},
        {**STAGES, "jit": True},
    ],
    ids=label,
)
def test_passes_are_in_order(parallel: dict[str, Any], grid: Any) -> None:
    engine = grid[0] if parallel == GRID else driving.make(parallel, "norm")
    batches = driving.feed(engine)
    engine.train(batches, 1)
    with timeline.recording() as ops:
        engine.train(batches, 1)
    turns, replicas = parallel.get("accumulate", 1), parallel.get("replicas", 1)
    spans = timeline.spans_of(ops, turns)
    orders = schedule.passes(
        parallel.get("schedule", "1f1b"), parallel["microbatches"], parallel["stages"]
    )
    for replica, (stage, order) in itertools.product(range(replicas), enumerate(orders)):
        own = [span for span in spans if (span.replica, span.stage) == (replica, stage)]
        passes = [(span.what, span.microbatch, span.turn) for span in own if span.what in WAYS]
        assert passes == [
            (done.direction, done.microbatch, turn) for turn in range(turns) for done in order
        ]
        assert all(one.end <= other.begin for one, other in itertools.pairwise(own))
        rest = [span.what for span in own if span.what not in WAYS]
        assert rest == (["reduce", "update"] if replicas > 1 else rest) and "update" in rest
    own_of = {(s.replica, s.stage, s.what, s.microbatch, s.turn): s for s in spans}
    last = parallel["stages"] - 1
    for (replica, stage, way, microbatch, turn), span in own_of.items():
        if way == "forward" and stage:
            assert own_of[replica, stage - 1, way, microbatch, turn].end <= span.begin
        if way == "backward":
            needed = (stage, "forward") if stage == last else (stage + 1, way)
            assert own_of[(replica, *needed, microbatch, turn)].end <= span.begin
        if turn:  # in memory, one turn is there at a time
            before = [s for s in spans if s.turn < turn and s.what in WAYS]
            assert span.begin > max(s.begin for s in before)
    assert 0 <= timeline.idle(spans) < 1


@pytest.mark.parametrize("parallel", [ONE, slow(MIRRORED)], ids=label)
def test_turns_follow_each_other(parallel: dict[str, Any]) -> None:
    engine = driving.make({**parallel, "accumulate": 2}, "norm")
    batches = driving.feed(engine)
    engine.train(batches, 1)
    with timeline.recording() as ops:
        engine.train(batches, 1)
    passes = [op for op in ops if "Conv2D" in op.name or "MatMul" in op.name]
    for replica in range(parallel.get("replicas", 1)):
        own = [op for op in passes if ("replica_1/" in op.name) == bool(replica)]
        later = [op for op in own if op.name.count("while/body") > 1]
        first = [op for op in own if op.name.count("while/body") == 1]
        assert len(later) == len(first) > 2
        assert max(op.end for op in first) < min(op.begin for op in later)


WAYS = (schedule.FORWARD, schedule.BACKWARD)
