"""Records the ops of a step, and writes its timeline: as data, and for a trace viewer.

TensorFlow's profiler records the begin and end of each op on the host, and on GPUs. The graph does
not change. benchmarks/RESULTS.md has the cost of the recorded step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import pathlib
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

# Private, but the same in TensorFlow 2.16 to 2.21; the public way to read it is TensorBoard.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.training.monitoring.spans import (
    Op,
    Span,
    find_spans,
    idle,
    slots_of,
)

DATA, TRACE = "timeline.json", "timeline.trace.json"

_WAITING = {"_Recv", "_HostRecv"}

_log = logging.getLogger(__name__)


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
