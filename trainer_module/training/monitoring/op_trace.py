"""Records the ops that TensorFlow executes, with their times, by its profiler.

The profiler notes begin and end of each op on the host, and on GPUs. The graph stays as it is.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

# Private, but the same in TensorFlow 2.16 to 2.21; the public way to read it is TensorBoard.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_WAITING = {"_Recv", "_HostRecv"}
"""Ops whose time is waiting."""


class Op(NamedTuple):
    """An executed op; times in seconds."""

    name: str
    begin: float
    end: float


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
