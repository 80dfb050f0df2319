"""Records the ops of a step, and writes its timeline: as data, and for a trace viewer.

TensorFlow's profiler records the begin and end of each op on the host, and on GPUs. The graph does
not change. benchmarks/RESULTS.md has the cost of the recorded step. Ops are known by the name
scopes in which the grid creates them
(:data:`stagecraft.trainer_module.engines.stage_replica.SCOPE`): they show when each stage made
which pass of the step. If passes share a function, its ops have no such name; the copies of its
inputs and results have one, and limit the pass.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import logging
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# Private, but the same in TensorFlow 2.16 to 2.21; the public way to read it is TensorBoard.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.pipeline_parallel.schedule import Pass, Slot

DATA, TRACE = "timeline.json", "timeline.trace.json"

_SCOPE = re.compile(r"replica(\d+)_stage(\d+)(?:_shard\d+)?/(forward|backward|reduce|update)(\d*)/")
_GRADIENT = "gradient_tape/"

_WAITING = {"_Recv", "_HostRecv"}

_log = logging.getLogger(__name__)


class Op(NamedTuple):
    """An executed op; times in seconds."""

    name: str
    begin: float
    end: float


@dataclasses.dataclass(frozen=True, order=True)
class Span:
    """A piece of work of one stage of one replica, from its first op to its last one."""

    begin: float
    """Seconds since the first span of the step began."""
    end: float
    """Seconds since the first span of the step began."""
    replica: int
    stage: int
    kind: str
    """``forward``, ``backward``, ``reduce`` (gradients over the replicas) or ``update``."""
    microbatch: int | None
    """Microbatch of a pass; None for ``reduce`` and ``update``."""
    accumulation_step: int
    """Index below ``parallel.accumulate``, from 0."""


class _Key(NamedTuple):
    replica: int
    stage: int
    kind: str
    microbatch: int | None
    accumulation_step: int


@dataclasses.dataclass
class Timeline:
    """Records one step, and writes its timeline."""

    step: int
    folder: str
    microbatches: int
    """Microbatches of the schedule, for the predicted bubble."""
    stages: int
    virtual_stages: int = 1
    accumulate: int = 1

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """The block takes the step."""
        with record_ops() as ops:
            yield
        spans = find_spans(ops, self.stages, self.accumulate)
        bubble = schedule.bubble(self.microbatches, self.stages, self.virtual_stages)
        data = describe(self.step, spans, self.stages, bubble)
        trace = pathlib.Path(self.folder, TRACE)
        pathlib.Path(self.folder, DATA).write_text(json.dumps(data, indent=1))
        trace.write_text(json.dumps(chrome_trace(spans)))
        _log.info(
            "Step %d took %.4f s; stages waited %.1f %% of it (%.1f %% with equal stages). For a "
            "trace viewer: %s",
            *(self.step, data["seconds"], 100 * data["idle"], 100 * data["bubble"]),
            trace,
        )


def find_spans(ops: Iterable[Op], stages: int, accumulate: int = 1) -> list[Span]:
    """The spans of a step, by begin; only ops in the scopes of the grid count.

    ``stages``: devices of a replica; the device of a virtual stage is its number mod ``stages``.

    A pass begins when the pass that it needs has ended. Forward needs the stage before, backward
    the stage after; backward in the last stage needs its own forward pass.
    """
    ops_of = _by_key(ops, accumulate)
    chains: dict[tuple[int, int | None, int], list[_Key]] = collections.defaultdict(list)
    for key in ops_of:
        chains[key.replica, key.microbatch, key.accumulation_step].append(key)
    spans = []
    for (_, microbatch, _), keys in chains.items():
        ordered = [[key] for key in keys] if microbatch is None else [sorted(keys, key=_order)]
        for chain in ordered:
            times = windows([ops_of[key] for key in chain])
            spans += [
                Span(begin, end, *key) for (begin, end), key in zip(times, chain, strict=True)
            ]
    spans = _without_overlaps(spans, stages)
    first = min((span.begin for span in spans), default=0.0)
    return sorted(
        dataclasses.replace(span, begin=span.begin - first, end=span.end - first) for span in spans
    )


def _by_key(ops: Iterable[Op], accumulate: int) -> dict[_Key, list[Op]]:
    matched = [(op, match) for op in ops if (match := _SCOPE.search(op.name))]
    matched.sort(key=lambda pair: pair[0].begin)
    executions = collections.Counter(op.name for op, _ in matched)
    seen: dict[str, int] = collections.Counter()
    first_scope: str | None = None
    result: dict[_Key, list[Op]] = collections.defaultdict(list)
    for op, match in matched:
        scope = op.name[: match.start()]
        kind = "backward" if _GRADIENT in scope else match[3]
        microbatch, step = (int(match[4]), 0) if match[4] else (None, 0)
        if microbatch is not None:
            # A loop, which has a scope of its own, follows the first accumulation step.
            scope = scope.replace(_GRADIENT, "")
            first_scope = scope if first_scope is None else first_scope
            if scope != first_scope:
                step = 1 + seen[op.name] * (accumulate - 1) // executions[op.name]
            seen[op.name] += 1
        result[_Key(int(match[1]), int(match[2]), kind, microbatch, step)].append(op)
    return result


def _order(key: _Key) -> tuple[bool, int]:
    """Sorts the passes of a microbatch: forward through the stages, then backward."""
    backward = key.kind == schedule.BACKWARD
    return backward, -key.stage if backward else key.stage


def _without_overlaps(spans: Iterable[Span], stages: int) -> list[Span]:
    """Cuts the spans of each device so that each ends before the next one begins.

    Ops that no op waits for, such as those of moving statistics, may run late; some ops of
    ``reduce`` and ``update`` have no inputs, and run early.
    """
    devices: dict[tuple[int, int], list[Span]] = collections.defaultdict(list)
    for span in spans:
        devices[span.replica, span.stage % stages].append(span)
    result = []
    for own in devices.values():
        passes = sorted(span for span in own if span.microbatch is not None)
        for span, after in itertools.zip_longest(passes, passes[1:]):
            end = min(span.end, after.begin) if after else span.end
            result.append(dataclasses.replace(span, end=end))
        free = result[-1].end if passes else 0.0
        # By name, reduce before update: a late op of reduce does not delay the order.
        others = sorted((s for s in own if s.microbatch is None), key=lambda span: span.kind)
        for span in others:
            begin = max(span.begin, free)
            free = max(span.end, begin)
            result.append(dataclasses.replace(span, begin=begin, end=free))
    return result


def slots_of(spans: Iterable[Span], replica: int = 0) -> list[Slot]:
    """The passes of a replica."""
    return [
        Slot(Pass(span.kind, span.stage, span.microbatch), span.begin, span.end)
        for span in spans
        if span.replica == replica and span.microbatch is not None
    ]


def idle(spans: list[Span], stages: int) -> float:
    """The bubble: the share of the time, from first to last pass, in which devices are idle."""
    replicas = sorted({span.replica for span in spans})
    shares = [schedule.idle(slots_of(spans, replica), stages) for replica in replicas]
    return sum(shares) / len(shares) if shares else 0.0


def windows(passes: Sequence[Sequence[Op]]) -> list[tuple[float, float]]:
    """Begin and end of passes, each of which needs the one before it, by the ops of each.

    An executor runs an op as soon as its inputs are ready, so some ops run early, such as the
    derivative of an activation, some late, such as moving statistics. The boundary of two passes is
    the time with the least work on the wrong side. A pass with all of its work there takes no time.
    """
    every = [op for ops in passes for op in ops]
    first, last = min(op.begin for op in every), max(op.end for op in every)
    inner = (boundary(one, other) for one, other in itertools.pairwise(passes))
    times = [*itertools.accumulate([first, *inner], max), last]
    result = []
    for ops, (since, until) in zip(passes, itertools.pairwise(times), strict=True):
        inside = [op for op in ops if op.begin < until and op.end > since]
        begin = max(since, min((op.begin for op in inside), default=since))
        result.append((begin, min(until, max((op.end for op in inside), default=begin))))
    return result


def boundary(before: Sequence[Op], after: Sequence[Op]) -> float:
    """The time with the least work on its wrong side.

    Wrong are ops of ``before`` after this time, and ops of ``after`` before it.
    """
    # With time, ops of the first leave the wrong side, and ops of the second enter it.
    steps = [(op.begin, -1) for op in before] + [(op.end, 1) for op in before]
    steps += [(op.begin, 1) for op in after] + [(op.end, -1) for op in after]
    steps.sort()
    wrong, slope = 0.0, 0
    best, least = steps[0][0], 0.0
    for (time, change), (following, _) in itertools.pairwise(steps):
        slope += change
        wrong += slope * (following - time)
        if wrong <= least:
            best, least = following, wrong
    return best


def describe(step: int, spans: list[Span], stages: int, bubble: float) -> dict[str, Any]:
    """The content of ``timeline.json``, with the measured and the predicted bubble."""
    seconds = max((span.end for span in spans), default=0.0)
    busy = [
        sum(slot.end - slot.begin for slot in slots_of(spans) if slot.done.stage % stages == stage)
        for stage in range(stages)
    ]
    return {
        "step": step,
        "seconds": seconds,
        "stages": stages,
        "bubble": bubble,
        "idle": idle(spans, stages),
        "shares": [each / (sum(busy) or 1) for each in busy],
        "spans": [_as_json(span) for span in spans],
    }


def _as_json(span: Span) -> dict[str, Any]:
    return {_FIELDS.get(name, name): value for name, value in dataclasses.asdict(span).items()}


_FIELDS = {"kind": "what", "accumulation_step": "turn"}


def chrome_trace(spans: Iterable[Span]) -> dict[str, Any]:
    """The trace for chrome://tracing and Perfetto: a process per replica, a thread per stage.

    Format: "Trace Event Format", complete events, microseconds.
    """
    spans = list(spans)
    events: list[dict[str, Any]] = []
    for replica, stage in sorted({(span.replica, span.stage) for span in spans}):
        place = {"ph": "M", "pid": replica, "tid": stage}
        events.append({"name": "process_name", "args": {"name": f"replica {replica}"}, **place})
        events.append({"name": "thread_name", "args": {"name": f"stage {stage}"}, **place})
    for span in spans:
        number = "" if span.microbatch is None else f" {span.microbatch}"
        events.append(
            {
                "name": f"{span.kind}{number}",
                "cat": span.kind,
                "ph": "X",
                "ts": span.begin * 1e6,
                "dur": (span.end - span.begin) * 1e6,
                "pid": span.replica,
                "tid": span.stage,
                "args": {"microbatch": span.microbatch, "turn": span.accumulation_step},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


@contextlib.contextmanager
def record_ops() -> Iterator[list[Op]]:
    """Yields a list; the end of the block fills it with the ops that were executed in the block."""
    ops: list[Op] = []
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=1
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options=options)
        try:
            yield ops
        finally:
            tf.profiler.experimental.stop()
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            ops.extend(_ops(xplane_pb2.XSpace.FromString(path.read_bytes())))


def _ops(space: Any) -> Iterator[Op]:
    """Reads the ops of the profiler's XSpace (tensorflow/tsl/profiler/protobuf/xplane.proto)."""
    on_gpus = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    # On GPUs, an op on the host is the launch of its kernels.
    for plane in on_gpus or [plane for plane in space.planes if plane.name.startswith("/host:CPU")]:
        started: dict[str, float] = {}
        events = [
            (line.timestamp_ns / 1e9 + event.offset_ps / 1e12, event)
            for line in plane.lines
            for event in line.events
        ]
        for begin, event in sorted(events, key=lambda pair: pair[0]):
            name = plane.event_metadata[event.metadata_id].name
            end = begin + event.duration_ps / 1e12
            if name.startswith("ExecutorState::ProcessAsync::"):  # such as an XLA computation
                stats = _stats(plane, event)
                own = stats.get("name", "")
                if name.endswith("Start") and stats.get("kernel_type") not in _WAITING:
                    started[own] = begin
                elif name.endswith("Done") and own in started:
                    yield Op(own, started.pop(own), end)
            elif on_gpus:
                yield Op(_stats(plane, event).get("tf_op", ""), begin, end)
            elif name.rpartition(":")[2] != "_Send":
                yield Op(name, begin, end)


def _stats(plane: Any, event: Any) -> dict[str, str]:
    return {
        plane.stat_metadata[stat.metadata_id].name: (
            stat.str_value or plane.stat_metadata[stat.ref_value].name
        )
        for stat in event.stats
        if stat.WhichOneof("value") in ("str_value", "ref_value")
    }
