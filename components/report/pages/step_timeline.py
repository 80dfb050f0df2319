"""The timeline of a step by stage, as measured and as planned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from stagecraft.components.report.pages.charts import Chart
from stagecraft.components.report.pages.svg import STYLE, Ink, inline
from stagecraft.trainer_module.pipeline_parallel import schedule

_INK = {"forward": Ink.BLUE, "backward": Ink.ORANGE, "reduce": Ink.VIOLET, "update": Ink.GREEN}
"""Kind of work -> colour."""

_WIDTH = 15.0  # inches, of 72 units
_BACKWARD = 2 / 3
"""Share of the backward pass in a stage's time, for old plans that do not record it."""


class Bar(NamedTuple):
    """A bar of the chart."""

    row: int
    begin: float
    end: float
    what: str
    text: str
    tip: str


def measured(timeline: dict[str, Any]) -> Chart | None:
    """The profiled step: a row for each stage of each replica; None without spans."""
    spans = timeline["spans"]
    if not spans:
        return None
    stages = timeline.get("stages", math.inf)  # an old timeline has no virtual stages

    def place(span: dict[str, Any]) -> tuple[int, int]:
        return span["replica"], int(span["stage"] % stages)

    places = sorted(set(map(place, spans)))
    rows = [f"replica {r}, stage {s}" for r, s in places]
    bars = [
        Bar(
            places.index(place(span)),
            1e3 * span["begin"],
            1e3 * span["end"],
            span["what"],
            "" if span["microbatch"] is None else str(span["microbatch"]),
            _tip(span),
        )
        for span in spans
    ]
    alt = (
        f"Timeline of step {timeline['step']}, {1e3 * timeline['seconds']:,.0f} ms, by stage. "
        f"Stages were idle for {timeline['idle']:.0%} of the time between first and last pass."
    )
    return Chart(f"Step {timeline['step']}, as measured", _chart("measured", rows, bars, alt))


def planned(plan: dict[str, Any]) -> Chart | None:
    """The planned step of one replica; None without stages."""
    stages, virtual = plan["stages"], plan.get("virtual_stages", 1)
    if len(stages) < 2:
        return None
    devices = len(stages) // virtual
    orders = schedule.passes(plan["microbatch_schedule"], plan["microbatches"], devices, virtual)
    unit = sum(stage["share"] for stage in stages) * plan["microbatches"] / 100
    back = [stage.get("backward_share", _BACKWARD) for stage in stages]
    forward = [stage["share"] * (1 - b) / unit for stage, b in zip(stages, back, strict=True)]
    backward = [stage["share"] * b / unit for stage, b in zip(stages, back, strict=True)]
    slots = schedule.timetable(orders, forward, backward)
    bars = [
        Bar(
            done.stage % devices,
            begin,
            end,
            done.direction,
            f"{done.microbatch}",
            f"{done.direction} {done.microbatch}",
        )
        for done, begin, end in slots
    ]
    alt = f"The planned step of one replica: stages are idle for {plan['idle']:.0%} of the time."
    rows = [f"planned, stage {number}" for number in range(devices)]
    return Chart("As planned", _chart("planned", rows, bars, alt, scale=False))


def _tip(span: dict[str, Any]) -> str:
    what = span["what"] if span["microbatch"] is None else f"{span['what']} {span['microbatch']}"
    begin, end = 1e3 * span["begin"], 1e3 * span["end"]
    return (
        f"{what}, replica {span['replica']}, stage {span['stage']}: "
        f"{begin:,.1f} to {end:,.1f} ms ({end - begin:,.1f} ms)"
    )


def _chart(
    name: str, rows: Sequence[str], bars: Sequence[Bar], alt: str, *, scale: bool = True
) -> Markup:
    with matplotlib.rc_context(STYLE):
        height = 0.36 * len(rows) + (0.95 if scale else 0.45)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.subplots()
        length = max(bar.end for bar in bars)
        tips = {}
        for number, bar in enumerate(bars):
            gid = f"bar-{number}"
            axes.barh(
                bar.row,
                bar.end - bar.begin,
                left=bar.begin,
                height=0.78,
                color=_INK[bar.what],
                edgecolor=Ink.ON_COLOUR,
                linewidth=0.8,
                gid=gid,
            )
            if bar.text and bar.end - bar.begin > 0.012 * length:
                axes.text(
                    (bar.begin + bar.end) / 2,
                    bar.row,
                    bar.text,
                    color=Ink.ON_COLOUR,
                    fontsize=11,
                    horizontalalignment="center",
                    verticalalignment="center_baseline",
                )
            tips[gid] = bar.tip
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, length)
        axes.grid(axis="y", visible=False)
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f} ms"))
        if not scale:
            axes.set_xticks([])
        used = [what for what in _INK if any(bar.what == what for bar in bars)]
        figure.legend(
            [matplotlib.patches.Patch(color=_INK[what]) for what in used],
            used,
            loc="outside upper right",
            ncols=len(used),
            labelcolor=Ink.MUTED,
        )
        return inline(figure, name, alt, tips)
