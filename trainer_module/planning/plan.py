"""A topology and its predicted costs, as data and as text. Imports no TensorFlow, and no NumPy."""

from __future__ import annotations

import dataclasses
import html

from stagecraft.common.text import columns, size
from stagecraft.trainer_module.parallel import strategy

_WIDEST = 100
_MOST_NAMED = 3

_TIMES = {
    "flops": "floating-point operations: they compare stages, but ignore copies and the network; "
    "use --measure or --devices for seconds",
    "peak": "from published rates, and the share of them that published trainings reach",
    "measured": "measured on this machine, each kind of layer by itself",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The layers and costs of one stage."""

    first: str
    last: str
    layers: int
    parameters: int
    trainable_parameters: int
    """The part of ``parameters`` that training changes."""
    flops: int
    """Floating-point operations of one example, forward."""
    activation_bytes: int
    """Bytes of activations, for one example."""
    output_bytes: int
    """Bytes sent to the next stage, for one example."""
    split_parameters: int = 0
    """The part of ``parameters`` that shards divide."""
    shard_bytes: int = 0
    """Bytes between the first shard and each other one in a forward pass of one example."""
    memory_bytes: int
    """Bytes on its device: weights; gradients and optimizer slots of trained weights; activations
    of the microbatches that it holds; and"""
    pass_bytes: int = 0
    """bytes that a backward pass takes for itself."""
    share: float
    """Share of the time of all stages."""
    backward_share: float
    """Share of the backward pass in the stage's time; 0 before the first trained weight."""
    forward_seconds: float | None
    """Forward time of a microbatch; None if times are operations."""
    backward_seconds: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TiedWeight:
    """A weight that several stages use."""

    path: str
    stages: list[int]
    """The first one holds it; the others copy it, and send back their gradients."""
    bytes: int
    """Bytes of these copies and gradients in a step, in each replica."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeLayer:
    """A layer whose own weights shards do not divide: they are on the first device of its stage."""

    path: str
    kind: str
    """Name of its class."""
    parameters: int
    reason: str


LEAST_WHOLE = 0.01
"""Parameters of a layer in :attr:`Plan.whole`, at least, by those of the model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A faster topology."""

    strategy: str
    replicas: int
    stages: int
    microbatches: int
    virtual_stages: int
    cuts: str
    memory_bytes: int
    """Bytes on the device that needs the most."""
    speedup: float
    """Speed-up over one device."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """A topology and its predicted costs; a table in a terminal and in a notebook."""

    model: str
    strategy: str
    workers: int
    devices: list[list[str]]
    """Devices of one worker: per replica, those of each stage, with its shards."""
    shards: int = 1
    """Devices of each stage."""
    virtual_stages: int = 1
    """Parts of the model on each device. ``stages`` below are these parts: the device of part p is
    number p mod K."""
    batch_size: int
    """Examples of a step, over all devices."""
    accumulate: int
    microbatches: int
    microbatch_size: int
    microbatch_schedule: str
    times: str
    """Origin of the times: ``measured``, ``peak`` or ``flops``."""
    cuts: list[str]
    """The last layer of each stage except the final one, as ``parallel.cuts`` has them."""
    cuts_asked: str
    """``parallel.cuts`` of the settings: ``auto``, or names separated by commas."""
    stages: list[StagePlan]
    """Layers, parameters and costs of each stage."""
    tied: list[TiedWeight]
    whole: list[WholeLayer] = dataclasses.field(default_factory=list)
    """Layers with at least 1 % of the parameters that shards do not divide; the largest first."""
    bubble: float
    """``(K - 1) / (V * M + K - 1)``, for equal stages."""
    idle: float
    step_seconds: float | None
    """Seconds of a step; None if the plan counts operations."""
    all_reduce_seconds: float | None
    """Part of ``step_seconds``: summing the gradients of all replicas of all workers; under
    ``parameter_server``, fetching and updating the variables. None: not known, and counted
    nowhere."""
    network_gbit: float | None
    """Assumed Gbit/s between hosts; None: hosts exchange nothing."""
    speedup: float
    """Speed-up over one device."""
    speedup_over_naive: float
    """Speed-up over the same stages run one after the other, without microbatches."""
    ideal_speedup: int
    limit: str
    suggestion: Suggestion | None

    @property
    def stage_count(self) -> int:
        """Number of stages of a replica; each has the devices of its shards."""
        return len(self.devices[0]) // self.shards

    @property
    def memory_bytes(self) -> int:
        """Bytes on the device that needs the most."""
        count = self.stage_count
        needs = [[each.memory_bytes for each in self.stages[at::count]] for at in range(count)]
        return max(map(sum, needs))

    def __str__(self) -> str:
        """The text that ``stagecraft plan`` prints."""
        paragraphs = [
            _heading(self),
            "\n".join(_replica(self, number) for number in range(len(self.devices))),
            _table(self),
            _diagram(self) if len(self.stages) > 1 or self.microbatches > 1 else "",
            _figures(self),
        ]
        return "\n\n".join(filter(None, paragraphs))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The text for notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>"


def _replica(plan: Plan, number: int) -> str:
    devices, count = plan.devices[number], plan.shards
    stages = ["+".join(devices[at : at + count]) for at in range(0, len(devices), count)]
    return f"replica {number}  {' → '.join(stages)}"


def _heading(plan: Plan) -> str:
    replicas = len(plan.devices)
    examples = f"{plan.batch_size:,} examples a step"
    if plan.accumulate > 1:
        examples += f", in {plan.accumulate} accumulation steps"
    if plan.microbatches > 1:
        examples += f", in {plan.microbatches} microbatches of {plan.microbatch_size:,}"
    grid = f"{replicas} × {plan.stage_count} (replicas × stages)"
    if plan.shards > 1:
        grid = f"{replicas} × {plan.stage_count} × {plan.shards} (replicas × stages × shards)"
    if plan.workers > 1:
        grid = f"{plan.workers} × {grid[:-1].replace('(', '(workers × ')})"
    return f"{plan.model} under {plan.strategy}, {grid}; {examples}"


def _table(plan: Plan) -> str:
    seconds = plan.stages[0].forward_seconds is not None
    names = ["stage", "layers", "", "parameters", "MFLOP", "activations", "memory", "time share"]
    rows = [[*names, *(["forward", "backward"] if seconds else [])]]
    devices = plan.stage_count
    for number, stage in enumerate(plan.stages):
        rows.append(
            [
                str(number % devices)
                + (f".{number // devices}" if plan.virtual_stages > 1 else ""),
                str(stage.layers),
                f"{stage.first} … {stage.last}",
                f"{stage.parameters:,}",
                f"{stage.flops / 1e6:,.1f}",
                size(stage.activation_bytes),
                size(stage.memory_bytes),
                f"{stage.share:.0%}",
            ]
        )
        if stage.forward_seconds is not None and stage.backward_seconds is not None:
            rows[-1] += [time_text(stage.forward_seconds), time_text(stage.backward_seconds)]
    legend = "MFLOP (forward pass) and activations: per example; memory: peak of the device"
    if plan.shards > 1:
        legend = legend.replace("the device", "the stage's first device")
    if plan.virtual_stages > 1:
        legend = legend.replace("peak of the device", "peak of the part; a device needs their sum")
        legend = f"stage S.V: virtual stage V on the device of stage S; {legend}"
    legend += "; times: per microbatch" if seconds else ""
    return f"{columns(rows, left=(2,))}\n{legend}"


def _diagram(plan: Plan) -> str:
    from stagecraft.trainer_module.pipeline_parallel import schedule  # with NumPy

    stages, parts = plan.stage_count, len(plan.stages)
    order = plan.microbatch_schedule
    orders = schedule.passes(order, plan.microbatches, stages, plan.virtual_stages)
    slots = schedule.timetable(orders, [1.0] * parts, [2.0] * parts)
    lines = [
        line if len(line) <= _WIDEST else line[: _WIDEST - 2] + " …"
        for line in schedule.picture(slots, stages).splitlines()
    ]
    return "\n".join([f"{order}, drawn with equal stages:", *lines])


def _figures(plan: Plan) -> str:
    stages, microbatches = plan.stage_count, plan.microbatches
    used = strategy.find(plan.strategy)
    lines = [f"times         {_TIMES[plan.times]}"]
    if plan.step_seconds is not None:
        rate = plan.batch_size / plan.step_seconds
        if not used.in_step:  # each step is one worker's
            rate *= plan.workers
        lines.append(f"step          {time_text(plan.step_seconds)}, {rate:,.0f} examples/s")
    if plan.all_reduce_seconds:
        lines.append(f"{used.traffic_name:13} {time_text(plan.all_reduce_seconds)} of it")
        if plan.network_gbit:
            lines[-1] += f", with {plan.network_gbit:g} Gbit/s between hosts (--network)"
    if plan.shards > 1:
        divided = sum(stage.split_parameters for stage in plan.stages)
        share = divided / max(1, sum(stage.parameters for stage in plan.stages))
        sent = size(sum(stage.shard_bytes for stage in plan.stages))
        lines.append(
            f"shards        {plan.shards} devices for each stage divide {share:.1%} of the "
            f"parameters; in a forward pass, {sent} per example go to or from each other device"
        )
    if plan.whole:
        total = sum(stage.parameters for stage in plan.stages)
        named = [
            f"{each.path} ({each.kind}, {each.parameters / total:.1%}) {each.reason}"
            for each in plan.whole
        ]
        more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        lines.append(f"whole         {'; '.join(named[:_MOST_NAMED])}{more}")
    if plan.tied:
        weights = ", ".join(
            f"{tied.path} of stages {' and '.join(map(str, tied.stages))}" for tied in plan.tied
        )
        sent = size(sum(tied.bytes for tied in plan.tied))
        lines.append(f"tied weights  {weights}: {sent} between stages in each step")
    if stages > 1:
        several = plan.virtual_stages > 1
        virtual, given = ("V * ", f", V = {plan.virtual_stages}") if several else ("", "")
        lines.append(
            f"bubble        {plan.bubble:.1%} = (K - 1) / ({virtual}M + K - 1), K = {stages}, M = "
            f"{microbatches}{given}; {plan.idle:.1%} with these stages"
        )
    lines.append(f"speed-up      {plan.speedup:.2f} over one device (at most {plan.ideal_speedup})")
    if stages > 1:
        lines[-1] += f", {plan.speedup_over_naive:.2f} over stages without microbatches"
    alone = len(plan.devices) == plan.workers == 1
    if plan.all_reduce_seconds is None and not alone:
        lines[-1] += "; without the all-reduce"
    lines.append(f"limited by    {plan.limit}")
    if plan.suggestion:
        better = plan.suggestion
        now = {
            "strategy": plan.strategy,
            "replicas": len(plan.devices),
            "stages": stages,
            "microbatches": microbatches,
            "virtual_stages": plan.virtual_stages,
            "cuts": plan.cuts_asked,
        }
        changes = [
            f"parallel.{name}: {getattr(better, name)}"
            for name, value in now.items()
            if getattr(better, name) != value
        ]
        lines.append(
            f"faster        {', '.join(changes)}: {better.speedup:.2f} over one device, with "
            f"{size(better.memory_bytes)} on each"
        )
        if better.replicas > 1 and plan.times != "peak":
            lines[-1] += "; without its all-reduce"
    return "\n".join(lines)


def time_text(seconds: float) -> str:
    """A time in its unit."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
