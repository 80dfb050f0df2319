"""When each pass of a step was made: as data, and as a picture for a trace viewer.

Taken from TensorFlow's profiler, which notes on the host, and on GPUs, when each op began and
ended; ops are known by the name scopes that the grid makes them in
(:data:`stagecraft.trainer_module.engines.stage_replica.SCOPE`). Nothing is added to the graph.
benchmarks/RESULTS.md has what the watched step costs.
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
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

# Not public, but in all of TensorFlow 2.16 to 2.21; the public way to read it is TensorBoard.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from stagecraft.trainer_module.planning import handover, schedule
from stagecraft.trainer_module.planning.schedule import Pass, Slot

DATA, TRACE = "timeline.json", "timeline.trace.json"

_SCOPE = re.compile(r"replica(\d+)_stage(\d+)/(forward|backward|reduce|update)(\d*)/")
_GRADIENT = "gradient_tape/"
_WAITING = {"_Recv", "_HostRecv"}
"""Ops that take time while nothing is done."""

_log = logging.getLogger(__name__)


class Op(NamedTuple):
    """An op as it was executed."""

    name: str
    begin: float
    """Seconds, and"""
    end: float
    """likewise."""


@dataclasses.dataclass(frozen=True, order=True)
class Span:
    """What a stage of a replica did, from its first op's begin to its last one's end; of a pass,
    without the ops that ran ahead or late."""

    begin: float
    """Seconds after the first span of the step, and"""
    end: float
    """likewise."""
    replica: int
    stage: int
    what: str
    """``forward``, ``backward``, ``reduce`` (gradients over the replicas) or ``update``."""
    microbatch: int | None
    """Of a pass."""
    turn: int
    """Of ``parallel.accumulate``."""


class Timeline:
    """Watches one step, and writes what it saw."""

    def __init__(self, step: int, folder: str, microbatches: int, turns: int = 1):
        """Prepares.

        Args:
            step: the one that is watched, from 1.
            folder: gets ``timeline.json`` and ``timeline.trace.json``.
            microbatches: of the schedule, for the predicted bubble.
            turns: ``parallel.accumulate``.
        """
        self.step = step
        self._folder = pathlib.Path(folder)
        self._microbatches = microbatches
        self._turns = turns

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """In it, the step is to be taken."""
        with recording() as ops:
            yield
        spans = spans_of(ops, self._turns)
        data = describe(self.step, spans, self._microbatches)
        (self._folder / DATA).write_text(json.dumps(data, indent=1))
        (self._folder / TRACE).write_text(json.dumps(chrome_trace(spans)))
        _log.info(
            "Step %d took %.4f s; stages waited %.1f %% of it (%.1f %% if they were equal). For a "
            "trace viewer: %s",
            *(self.step, data["seconds"], 100 * data["idle"], 100 * data["bubble"]),
            self._folder / TRACE,
        )


@contextlib.contextmanager
def recording() -> Iterator[list[Op]]:
    """Fills the list, at the end of the block, with the ops that were executed in it."""
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


def spans_of(ops: Iterable[Op], turns: int = 1) -> list[Span]:
    """What was done when, by begin.

    A pass begins once the one that it needs has ended
    (:mod:`stagecraft.trainer_module.planning.handover`):
    forward the one of the stage before, backward that of the stage after, or, in the last stage,
    its own forward pass.

    Args:
        ops: those in the scopes of the grid count.
        turns: ``parallel.accumulate``.
    """
    matched = [(op, match) for op in ops if (match := _SCOPE.search(op.name))]
    matched.sort(key=lambda pair: pair[0].begin)
    executed = collections.Counter(op.name for op, _ in matched)
    before: dict[str, int] = collections.Counter()
    around: list[str] = []
    found: dict[_Key, list[Op]] = collections.defaultdict(list)
    for op, match in matched:
        scope = op.name[: match.start()]
        what = "backward" if _GRADIENT in scope else match[3]
        microbatch, turn = (int(match[4]), 0) if match[4] else (None, 0)
        if microbatch is not None:
            # The first turn comes before a loop of the others, which has a scope of its own.
            scope = scope.replace(_GRADIENT, "")
            around += [] if scope in around else [scope]
            if scope != around[0]:
                turn = 1 + before[op.name] * (turns - 1) // executed[op.name]
            before[op.name] += 1
        found[_Key(int(match[1]), int(match[2]), what, microbatch, turn)].append(op)
    ways: dict[tuple[int, int | None, int], list[_Key]] = collections.defaultdict(list)
    for key in found:
        ways[key.replica, key.microbatch, key.turn].append(key)
    spans = []
    for (_, microbatch, _), keys in ways.items():
        links = [[key] for key in keys] if microbatch is None else [sorted(keys, key=_way)]
        for link in links:
            windows = handover.windows([found[key] for key in link])
            spans += [
                Span(begin, end, *key) for (begin, end), key in zip(windows, link, strict=True)
            ]
    return _from_zero(_one_by_one(spans))


class _Key(NamedTuple):
    replica: int
    stage: int
    what: str
    microbatch: int | None
    turn: int


def _way(key: _Key) -> tuple[bool, int]:
    """Sorts the passes of a microbatch: forward through the stages, then back."""
    back = key.what == schedule.BACKWARD
    return back, -key.stage if back else key.stage


def _one_by_one(spans: Iterable[Span]) -> list[Span]:
    """Without overlaps in a stage, whose passes follow one another.

    A pass is over when the next one begins: ops that nothing waits for, such as those of moving
    statistics, may be late. What has no microbatch, the all-reduce and then the update, begins
    after the last pass: some of its ops wait for nothing, and are early.
    """
    places: dict[tuple[int, int], list[Span]] = collections.defaultdict(list)
    for span in spans:
        places[span.replica, span.stage].append(span)
    result = []
    for own in places.values():
        passes = sorted(span for span in own if span.microbatch is not None)
        for span, after in itertools.zip_longest(passes, passes[1:]):
            end = min(span.end, after.begin) if after else span.end
            result.append(dataclasses.replace(span, end=end))
        free = result[-1].end if passes else 0.0
        # By name, reduce before update: an op of the first that nothing waits for may be late.
        for span in sorted((span for span in own if span.microbatch is None), key=_by_name):
            begin = max(span.begin, free)
            free = max(span.end, begin)
            result.append(dataclasses.replace(span, begin=begin, end=free))
    return result


def _by_name(span: Span) -> str:
    return span.what


def _from_zero(spans: list[Span]) -> list[Span]:
    first = min((span.begin for span in spans), default=0.0)
    return sorted(
        dataclasses.replace(span, begin=span.begin - first, end=span.end - first) for span in spans
    )


def describe(step: int, spans: list[Span], microbatches: int) -> dict[str, Any]:
    """The spans as JSON has it, with the bubble that was and the one that was predicted.

    Args:
        step: whose they are.
        spans: of :func:`spans_of`.
        microbatches: of the schedule.
    """
    stages = 1 + max((span.stage for span in spans), default=0)
    seconds = max((span.end for span in spans), default=0.0)
    busy = [
        sum(slot.end - slot.begin for slot in slots_of(spans) if slot.done.stage == stage)
        for stage in range(stages)
    ]
    return {
        "step": step,
        "seconds": seconds,
        "bubble": schedule.bubble(microbatches, stages),
        "idle": idle(spans),
        "shares": [each / (sum(busy) or 1) for each in busy],
        "spans": [dataclasses.asdict(span) for span in spans],
    }


def slots_of(spans: Iterable[Span], replica: int = 0) -> list[Slot]:
    """The passes of a replica."""
    return [
        Slot(Pass(span.what, span.stage, span.microbatch), span.begin, span.end)
        for span in spans
        if span.replica == replica and span.microbatch is not None
    ]


def idle(spans: list[Span]) -> float:
    """The part of the time, from first to last pass, in which a stage made none: the bubble."""
    replicas = sorted({span.replica for span in spans})
    found = [schedule.idle(slots_of(spans, replica)) for replica in replicas]
    return sum(found) / len(found) if found else 0.0


def chrome_trace(spans: Iterable[Span]) -> dict[str, Any]:
    """For chrome://tracing and Perfetto: a process for each replica, in it a thread for each stage.

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
                "name": f"{span.what}{number}",
                "cat": span.what,
                "ph": "X",
                "ts": span.begin * 1e6,
                "dur": (span.end - span.begin) * 1e6,
                "pid": span.replica,
                "tid": span.stage,
                "args": {"microbatch": span.microbatch, "turn": span.turn},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _ops(space: Any) -> Iterator[Op]:
    """The ops in the profiler's XSpace (tensorflow/tsl/profiler/protobuf/xplane.proto)."""
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
