import contextlib
import json
from collections.abc import Iterator

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.training.monitoring import timeline
from stagecraft.trainer_module.training.monitoring.timeline import Op, Span, find_spans, idle

LOOP = "while/body/_1/"


def op(stage: int, what: str, begin: float, end: float, *, around: str = LOOP) -> Op:
    """An op of replica 0; gradient ops bear the scope of their forward op."""
    if what.startswith("gradient"):
        what = what.replace("gradient", "forward")
        around += "gradient_tape/"
    return Op(f"{around}replica0_stage{stage}/{what}/conv:Conv2D", begin, end)


def times(spans: list[Span]) -> dict[tuple[int, str, int | None], tuple[float, float]]:
    return {
        (span.stage, span.kind, span.microbatch): (span.begin, span.end)
        for span in spans
        if not span.accumulation_step
    }


def test_spans_are_from_the_first_op_to_the_last_one():
    ops = [
        op(1, "forward0", 7.0, 8.5),
        op(0, "forward0", 5.0, 6.0),
        op(0, "forward0", 6.0, 6.5),
        op(1, "gradient0", 9.0, 10.0),
        op(1, "backward0", 10.0, 10.5),
        op(0, "backward0", 11.0, 12.0),
        Op("while/body/_1/elsewhere/mul:Mul", 0.0, 99.0),
    ]
    assert times(find_spans(ops, 3)) == {
        (0, "forward", 0): (0.0, 1.5),
        (1, "forward", 0): (2.0, 3.5),
        (1, "backward", 0): (4.0, 5.5),
        (0, "backward", 0): (6.0, 7.0),
    }


def test_a_pass_ends_when_the_next_one_begins():
    """Moving statistics are computed when there is time; nothing waits for them."""
    ops = [op(0, "forward0", 0.0, 1.0), op(0, "forward0", 1.4, 1.6), op(0, "forward1", 1.2, 2.0)]
    assert times(find_spans(ops, 3)) == {
        (0, "forward", 0): (0.0, 1.2),
        (0, "forward", 1): (1.2, 2.0),
    }


def test_a_pass_begins_when_the_one_that_it_needs_has_ended():
    """Derivatives of activations need no gradient that comes in, and are computed ahead."""
    ops = [
        op(0, "forward0", 0.0, 2.0),
        op(0, "gradient0", 1.5, 1.75),  # ahead
        op(0, "forward1", 2.0, 4.0),
        op(1, "forward0", 1.0, 1.25),  # ahead: a dropout mask
        op(1, "forward0", 2.0, 4.0),
        op(1, "gradient0", 2.5, 2.75),  # ahead
        op(1, "forward0", 4.25, 4.5),  # late
        op(1, "gradient0", 4.0, 8.0),
        op(0, "gradient0", 8.0, 12.0),
    ]
    spans = find_spans(ops, 2)
    assert times(spans) == {
        (0, "forward", 0): (0.0, 2.0),
        (0, "forward", 1): (2.0, 4.0),
        (1, "forward", 0): (2.0, 4.0),
        (1, "backward", 0): (4.0, 8.0),
        (0, "backward", 0): (8.0, 12.0),
    }
    assert idle(spans, 2) == pytest.approx(1 - 14 / 24)
    assert timeline.describe(1, spans, 2, 0.0)["shares"] == pytest.approx([8 / 14, 6 / 14])


def test_passes_of_other_replicas_and_turns_need_nothing_of_each_other():
    inner = LOOP + "while/body/_7/"
    first = [
        *(op(0, "forward0", 0.0, 1.0), op(1, "forward0", 1.0, 2.0)),
        *(
            op(0, "gradient0", 0.5, 0.75),
            op(1, "gradient0", 2.0, 4.0),
            op(0, "gradient0", 4.0, 6.0),
        ),
    ]

    def moved(by: float, old: str, new: str) -> list[Op]:
        return [Op(o.name.replace(old, new, 1), o.begin + by, o.end + by) for o in first]

    again, beside = moved(6, LOOP, inner), moved(1, "replica0", "replica1")
    spans = find_spans([*first, *again, *beside], 2, accumulate=2)
    for replica, turn, since in ((0, 0, 0.0), (0, 1, 6.0), (1, 0, 1.0)):
        own = [span for span in spans if (span.replica, span.accumulation_step) == (replica, turn)]
        assert [(s.stage, s.kind, s.begin - since, s.end - since) for s in own] == [
            (0, "forward", 0.0, 1.0),
            (1, "forward", 1.0, 2.0),
            (1, "backward", 2.0, 4.0),
            (0, "backward", 4.0, 6.0),
        ]


def test_a_pass_done_ahead_as_a_whole_takes_no_time():
    ops = [op(0, "forward0", 0.0, 2.0), op(1, "forward0", 0.5, 1.0), op(1, "gradient0", 2.0, 3.0)]
    assert times(find_spans(ops, 3)) == {
        (0, "forward", 0): (0.0, 2.0),
        (1, "forward", 0): (2.0, 2.0),
        (1, "backward", 0): (2.0, 3.0),
    }


def test_the_all_reduce_and_the_update_come_after_the_passes():
    ops = [
        op(0, "update", 0.0, 0.1),  # the learning rate
        op(0, "forward0", 0.0, 1.0),
        op(0, "gradient0", 1.0, 3.0),
        op(0, "reduce", 0.5, 3.5),
        op(0, "update", 3.5, 4.0),
    ]
    assert times(find_spans(ops, 3)) == {
        (0, "forward", 0): (0.0, 1.0),
        (0, "backward", 0): (1.0, 3.0),
        (0, "reduce", None): (3.0, 3.5),
        (0, "update", None): (3.5, 4.0),
    }


def test_turns_are_told_apart():
    """The first is before the loop of the others, in which names are the same each time."""
    inner = LOOP + "while/body/_7/"
    ops = [
        op(0, "forward0", 0.0, 1.0),
        op(0, "gradient0", 1.0, 2.0),
        *(op(0, "forward0", 2.0, 3.0, around=inner), op(0, "gradient0", 3.0, 4.0, around=inner)),
        *(op(0, "forward0", 4.0, 5.0, around=inner), op(0, "gradient0", 5.0, 6.0, around=inner)),
    ]
    spans = find_spans([*ops, *ops], 1, accumulate=3)  # twice: on GPUs, an op has several kernels
    assert [(span.kind, span.accumulation_step, span.begin) for span in spans] == [
        ("forward", 0, 0.0),
        ("backward", 0, 1.0),
        ("forward", 1, 2.0),
        ("backward", 1, 3.0),
        ("forward", 2, 4.0),
        ("backward", 2, 5.0),
    ]
    assert idle(spans, 1) == pytest.approx(0)


@pytest.mark.parametrize(("name", "virtual"), [("gpipe", 1), ("1f1b", 1), ("1f1b", 2)])
def test_the_bubble_of_an_ideal_step_is_the_formula(name, virtual):
    parts = 3 * virtual
    slots = schedule.timetable(schedule.passes(name, 6, 3, virtual), [1.0] * parts, [2.0] * parts)
    ops = [
        op(done.stage, f"{done.direction}{done.microbatch}", begin, end)
        for done, begin, end in slots
    ]
    spans = find_spans(ops, 3)
    assert len(spans) == 36 * virtual
    bubble = schedule.bubble(6, 3, virtual)
    assert idle(spans, 3) == pytest.approx(bubble)
    found = timeline.describe(7, spans, 3, bubble)
    assert (found["step"], found["seconds"]) == (7, 18 * virtual + 6)
    assert found["bubble"] == pytest.approx(found["idle"])
    assert found["shares"] == pytest.approx([1 / 3] * 3)


def test_nothing_seen_is_no_error():
    assert find_spans([], 1) == []
    assert timeline.describe(1, [], 1, 0.0)["seconds"] == 0


def test_the_trace_has_a_row_for_each_stage():
    spans = [Span(0.0, 0.5, 0, 1, "forward", 3, 0), Span(0.5, 0.75, 0, 1, "update", None, 0)]
    trace = timeline.chrome_trace(spans)
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["replica 0", "stage 1"]
    first, second = (event for event in trace["traceEvents"] if event["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"]) == ("forward 3", 0.0, 500_000.0)
    assert (first["pid"], first["tid"], second["name"]) == (0, 1, "update")
    json.dumps(trace, allow_nan=False)


# --- the profiler's own format ---


def space(*planes: tuple[str, list[tuple[str, int, int, dict[str, str]]]]) -> xplane_pb2.XSpace:
    """Planes of events: name, begin and duration in microseconds, stats."""
    made = xplane_pb2.XSpace()
    for plane_name, events in planes:
        plane = made.planes.add(name=plane_name)
        line = plane.lines.add(timestamp_ns=1_000_000)
        for number, (name, begin, duration, stats) in enumerate(events, start=1):
            plane.event_metadata[number].name = name
            event = line.events.add(
                metadata_id=number, offset_ps=begin * 1_000_000, duration_ps=duration * 1_000_000
            )
            for place, (key, value) in enumerate(stats.items()):
                plane.stat_metadata[100 * number + place].name = key
                event.stats.add(metadata_id=100 * number + place, str_value=value)
    return made


def test_ops_of_the_host():
    """Asynchronous ones, as XLA's computations are, from start to done."""
    start, done = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
    call = "replica0_stage0/forward0/PartitionedCall"
    events = [
        ("a:Conv2D", 0, 5, {}),
        (start, 10, 1, {"name": call, "kernel_type": "PartitionedCall"}),
        (done, 30, 2, {"name": call}),
        (start, 10, 1, {"name": "b", "kernel_type": "_Recv"}),
        (done, 40, 1, {"name": "b"}),
        ("c:_Send", 50, 1, {}),
    ]
    found = list(timeline._ops(space(("/host:CPU", events), ("/host:metadata", []))))
    assert [found_op.name for found_op in found] == ["a:Conv2D", call]
    assert found[0].end - found[0].begin == pytest.approx(5e-6)
    assert found[1].end - found[1].begin == pytest.approx(22e-6)


def test_on_gpus_kernels_count_and_not_their_launches():
    kernels = [("volta_gemm", 3, 4, {"tf_op": "replica0_stage0/forward0/conv:Conv2D"})]
    host = [("replica0_stage0/forward0/conv:Conv2D", 0, 1, {})]
    found = list(timeline._ops(space(("/host:CPU", host), ("/device:GPU:0", kernels))))
    assert [found_op.name for found_op in found] == ["replica0_stage0/forward0/conv:Conv2D"]
    assert found[0].end - found[0].begin == pytest.approx(4e-6)


def test_files(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def recorded() -> Iterator[list[Op]]:
        ops: list[Op] = []
        yield ops
        ops += [op(0, "forward0", 0.0, 1.0), op(0, "gradient0", 1.0, 3.0)]

    monkeypatch.setattr(timeline, "record_ops", recorded)
    with timeline.Timeline(5, str(tmp_path), microbatches=1, stages=1).recorded():
        pass
    data = json.loads((tmp_path / "timeline.json").read_text())
    assert (data["step"], data["seconds"], data["bubble"], data["idle"]) == (5, 3.0, 0.0, 0.0)
    assert [span["what"] for span in data["spans"]] == ["forward", "backward"]
    trace = json.loads((tmp_path / "timeline.trace.json").read_text())
    assert len(trace["traceEvents"]) == 4
