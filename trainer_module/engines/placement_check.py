"""Checks that every op ran on its planned device.

TensorFlow moves ops silently, and ``set_soft_device_placement(False)`` misses some moves, such as a
backward pass on the first device. So the check reads the graphs as they were executed: divided by
device, after all optimizations. TensorFlow does not report the graph of a function that is not
inlined. Its ops run on the device of its call, unless the function names another one.

The check identifies ops by the name scopes of the engines; a gradient op's name contains its
forward op's.
"""

from __future__ import annotations

import collections
import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# Not public; what tf.summary.trace_on uses. The profiler's step_stats are empty in TensorFlow 2.
from tensorflow.python.eager import context

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.pipeline_parallel import schedule

GRADIENT = "gradient_tape/"
"""TensorFlow's scope of gradient ops."""

_PLUMBING = {
    *("NoOp", "Const", "_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval"),
    *("OptionalFromValue", "OptionalGetValue"),
}
"""Ops that compute nothing, placed with their neighbours."""

_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}

_IN_CALL = re.compile(r"PartitionedCall\w*/")

_EDGE = re.compile(r"/_\d+$")
"""End of the name of an op that TensorFlow put on an edge between two devices."""

_STAGE_REPLICA = re.compile(r"replica(\d+)_stage(\d+)(?:_shard(\d+))?/([a-z]+)")
_DEVICE = re.compile(r"device:(\w+:\d+)$")

_EXAMPLES = 3

Place = tuple[int, int, int]
"""Replica, stage and shard."""


class Op(NamedTuple):
    """An op as it was executed."""

    name: str
    kind: str
    device: str
    """Device, such as ``"CPU:1"``."""


@contextlib.contextmanager
def recording() -> Iterator[list[Op]]:
    """Fills the list, at the end of the block, with the ops of functions first called in it."""
    here = context.context()
    ops: list[Op] = []
    # Not enable_run_metadata: disabling it leaves the collection of graphs on.
    here.enable_graph_collection()
    try:
        yield ops
    finally:
        metadata = here.export_run_metadata()
        here.disable_graph_collection()
    called: set[Any] = set()
    for functions in metadata.function_graphs:
        for graph in functions.partition_graphs:
            ops.extend(_ops(graph, called))


def _ops(graph: Any, called: set[Any]) -> Iterator[Op]:
    """The ops of a graph, and those of the functions that it calls.

    Args:
        called: functions with the places of their calls; another microbatch calls the same.
    """
    for node in graph.node:
        device = _DEVICE.search(node.device)
        if device and node.op not in _PLUMBING and not _EDGE.search(node.name):
            yield Op(node.name, node.op, device[1])
            if node.op in _CALLS:
                scopes = *_STAGE_REPLICA.findall(node.name), GRADIENT in node.name
                key = _function(node), device[1], scopes
                if key not in called:
                    called.add(key)
                    yield from _called(node, device[1])


def _function(call: Any) -> str:
    # Grappler copies a function for a call, and adds to its name.
    name: str = call.attr["f"].func.name
    return name.partition("_specialized_for_")[0]


def _called(call: Any, device: str, prefix: str = "") -> Iterator[Op]:
    """The ops of a function that is not inlined, and of those that it calls, below its name."""
    name = _function(call)
    here = context.context()
    if not here.has_function(name):
        return
    function = here.get_function_def(name)
    if not prefix and not function.attr["_noinline"].b:
        return
    for node in function.node_def:
        own = _DEVICE.search(node.device)
        placed = own[1] if own else device
        if node.op in _CALLS:
            yield from _called(node, placed, f"{prefix}{call.name}/")
        elif node.op not in _PLUMBING:
            yield Op(f"{prefix}{call.name}/{node.name}", node.op, placed)


def check_stage_replicas(
    ops: Sequence[Op],
    devices: Mapping[Place, str],
    backward: Collection[Place],
) -> None:
    """Checks the device of the ops of each (replica, stage, shard) in a training step."""
    seen: dict[Place, set[str]] = collections.defaultdict(set)
    wrong = []
    for op in ops:
        if not (matches := _STAGE_REPLICA.findall(op.name)):
            continue
        # Of an op in a function, the first match is of the pass that calls it.
        replica, stage, shard, _ = matches[-1]
        part = matches[0][-1]
        place = int(replica), int(stage), int(shard or 0)
        seen[place].add(schedule.BACKWARD if GRADIENT in op.name else part)
        # TensorFlow keeps the tables of StringLookup and the like on the host.
        on_host = op.kind.startswith("LookupTable")
        planned = {devices[place]}
        if op.kind == "AddN" and _IN_CALL.search(op.name):
            # TensorFlow sums the gradients of a shard on its device, without a name scope.
            planned |= {each for other, each in devices.items() if other[:2] == place[:2]}
        if op.device not in planned and not on_host:
            wrong.append(_elsewhere(op, devices[place]))
    _refuse(wrong)
    missing = [
        (_named(place), f"no {part} ops of {_named(place)} on {device}")
        for place, device in devices.items()
        for part in (schedule.FORWARD, schedule.BACKWARD)
        if part not in seen[place] and (part == schedule.FORWARD or place in backward)
    ]
    _refuse(missing)


def _named(place: Place) -> str:
    replica, stage, shard = place
    return f"replica {replica}, stage {stage}" + (f", shard {shard}" if shard else "")


def check_replicas(ops: Sequence[Op], devices: Sequence[str]) -> None:
    """Checks that the gradient ops of a step ran on the devices of the replicas."""
    gradients = [op for op in ops if GRADIENT in op.name]
    _refuse([_elsewhere(op, " or ".join(devices)) for op in gradients if op.device not in devices])
    used = {op.device for op in gradients}
    _refuse([(each, f"no backward ops on {each}") for each in devices if each not in used])


def _elsewhere(op: Op, planned: str) -> tuple[str, str]:
    return op.name, f"{op.name} ({op.kind}) on {op.device} instead of {planned}"


def _refuse(wrong: Sequence[tuple[str, str]]) -> None:
    """``wrong``: what did not run where it was planned, and a phrase for people."""
    if wrong:
        examples = "; ".join(problem for _, problem in wrong[:_EXAMPLES])
        more = f", and {len(wrong) - _EXAMPLES} more" if len(wrong) > _EXAMPLES else ""
        raise UserError(
            f"parallel: the first step ran on other devices than planned: {examples}{more}. Remove "
            "tf.device from the layers of the model. If no layer has it, this is a bug in "
            "Stagecraft",
            setting="parallel",
            record=wrong[0][0],
        )
