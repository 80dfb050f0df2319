import itertools

import driving
import pytest
from driving import GRID, MIRRORED, ONE, STAGES, label, rare

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.training.monitoring.timeline import find_spans, idle, record_ops


@pytest.mark.parametrize(
    "parallel",
    [
        GRID,
        rare({**GRID, "accumulate": 2}),
        {**STAGES, "stages": 2, "accumulate": 2, "microbatch_schedule": "gpipe"},
        {**STAGES, "jit": True},
        {**STAGES, "stages": 2, "virtual_stages": 2, "microbatches": 4},
    ],
    ids=label,
)
def test_passes_are_in_order(parallel, grid):
    engine = grid[0] if parallel == GRID else driving.make(parallel, "norm")
    batches = driving.feed(engine)
    engine.train(batches, 1)
    turns, replicas = parallel.get("accumulate", 1), parallel.get("replicas", 1)
    stages, virtual = parallel["stages"], parallel.get("virtual_stages", 1)
    orders = schedule.passes(
        parallel.get("microbatch_schedule", "1f1b"), parallel["microbatches"], stages, virtual
    )
    places = list(itertools.product(range(replicas), range(stages)))
    wanted = {
        place: [(p.direction, p.stage, p.microbatch, turn) for turn in range(turns) for p in order]
        for place, order in zip(places, orders * replicas, strict=True)
    }
    for _ in range(10):  # a busy machine's profiler loses or delays an event now and then
        with record_ops() as ops:
            engine.train(batches, 1)
        spans = find_spans(ops, stages, turns)
        of = {
            (replica, device): [
                span for span in spans if (span.replica, span.stage % stages) == (replica, device)
            ]
            for replica, device in places
        }
        passes = {
            place: [
                (span.kind, span.stage, span.microbatch, span.accumulation_step)
                for span in own
                if span.kind in WAYS
            ]
            for place, own in of.items()
        }
        if passes == wanted:
            break
    assert passes == wanted
    for own in of.values():
        assert all(one.end <= other.begin for one, other in itertools.pairwise(own))
        rest = [span.kind for span in own if span.kind not in WAYS]
        assert virtual > 1 or rest == (["reduce", "update"] if replicas > 1 else rest)
        assert rest.count("update") == virtual
    own_of = {(s.replica, s.stage, s.kind, s.microbatch, s.accumulation_step): s for s in spans}
    last = stages * virtual - 1
    for (replica, stage, way, microbatch, turn), span in own_of.items():
        if way == "forward" and stage:
            assert own_of[replica, stage - 1, way, microbatch, turn].end <= span.begin
        if way == "backward":
            needed = (stage, "forward") if stage == last else (stage + 1, way)
            assert own_of[(replica, *needed, microbatch, turn)].end <= span.begin
        if turn:  # in memory, one turn is there at a time
            before = [s for s in spans if s.accumulation_step < turn and s.kind in WAYS]
            assert span.begin > max(s.begin for s in before)
    assert 0 <= idle(spans, stages) < 1


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED)], ids=label)
def test_turns_follow_each_other(parallel):
    engine = driving.make({**parallel, "accumulate": 2}, "norm")
    batches = driving.feed(engine)
    engine.train(batches, 1)
    with record_ops() as ops:
        engine.train(batches, 1)
    passes = [op for op in ops if "Conv2D" in op.name or "MatMul" in op.name]
    for replica in range(parallel.get("replicas", 1)):
        own = [op for op in passes if ("replica_1/" in op.name) == bool(replica)]
        later = [op for op in own if op.name.count("while/body") > 1]
        first = [op for op in own if op.name.count("while/body") == 1]
        assert len(later) == len(first) > 2
        assert max(op.end for op in first) < min(op.begin for op in later)


WAYS = (schedule.FORWARD, schedule.BACKWARD)
