"""Charts of a training and its model: curves, calibration, residuals, the timeline of a step.

Matplotlib draws them as SVG that follows the page's colours, light and dark. Figures use
placeholder colours (:class:`Ink`), which :func:`inline` replaces by CSS variables.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from stagecraft.components.evaluator.evaluation import UNDEFINED, CalibrationBin
from stagecraft.components.report.pages.formats import title
from stagecraft.components.report.report_data import Training
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.training.monitoring.curve import Point

_SVG = "http://www.w3.org/2000/svg"


SIZE = (5.2, 3.1)
"""Inches, of 72 units. At 360 pixels, a phone shows text of 12 units with 10 pixels."""

_DASHED = (0, (4, 3))

_WIDTH = 15.0  # inches, of a timeline

_BACKWARD = 2 / 3
"""Share of the backward pass in a stage's time, for old plans that do not record it."""


class Ink:
    """Placeholders for the page's colours; each becomes a CSS variable."""

    TEXT = "#010101"
    MUTED = "#020202"
    LINE = "#030303"
    BLUE = "#040404"
    ORANGE = "#050505"
    GREEN = "#060606"
    VIOLET = "#070707"
    ON_COLOUR = "#080808"


_VARIABLES = {
    ink: f"var(--{name.lower().replace('_', '-')})"
    for name, ink in vars(Ink).items()
    if name.isupper()
}

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "stagecraft",  # the same figure, the same bytes
    "font.size": 12.0,
    "text.color": Ink.TEXT,
    "axes.axisbelow": True,
    "axes.edgecolor": Ink.LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": Ink.MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "grid.color": Ink.LINE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "xtick.color": Ink.LINE,
    "xtick.labelcolor": Ink.MUTED,
    "ytick.color": Ink.LINE,
    "ytick.labelcolor": Ink.MUTED,
}
"""Settings for ``matplotlib.rc_context``, while drawing a figure and in :func:`inline`."""


def inline(
    figure: Figure, name: str, description: str, tips: Mapping[str, str] | None = None
) -> Markup:
    """The figure, in colours of ``Ink`` and 72 units an inch, as an ``<svg>`` element.

    ``name``: letters, unique on the page. ``tips``: tooltips by an artist's ``gid``.
    """
    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata=no_metadata)
    text = stream.getvalue()
    root = ET.fromstring(text[text.index("<svg") :])
    for element in list(root):
        if element.tag == f"{{{_SVG}}}metadata":
            root.remove(element)
    for definitions in root.iter(f"{{{_SVG}}}defs"):
        for style in definitions.findall(f"{{{_SVG}}}style"):  # would apply to the whole page
            definitions.remove(style)
    for element in root.iter():
        tip = (tips or {}).get(element.get("id", ""))
        if tip is not None:
            title = ET.Element(f"{{{_SVG}}}title")
            title.text = tip
            element.insert(0, title)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    root.set("stroke-linejoin", "round")
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    return Markup(_themed(ET.tostring(root, encoding="unicode"), name))


def _themed(text: str, name: str) -> str:
    for ink, variable in _VARIABLES.items():
        text = text.replace(ink, variable)
    text = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px", text)
    # IDs are unique on the page.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)


_OF_WORK = {"forward": Ink.BLUE, "backward": Ink.ORANGE, "reduce": Ink.VIOLET, "update": Ink.GREEN}
"""Kind of work -> colour."""


class Chart(NamedTuple):
    """A chart and its title."""

    title: str
    svg: Markup


def curves(training: Training, noun: str = "images") -> list[Chart]:
    """Loss, metrics, learning rate and speed by step; empty if nothing was logged."""
    points = training.curve
    if len(points) < 2:
        return []
    evaluations = training.record["evaluations"]
    best = training.record["best"]
    with matplotlib.rc_context(STYLE):
        return [
            _curve("Loss", "loss", points, evaluations, best),
            *(_curve(title(name), name, points, evaluations, best) for name in points[-1].metrics),
            _learning_rate(points),
            _speed(points, training.record["images_per_second"], noun),
        ]


def _axes(xlabel: str, ylabel: str = "") -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.tick_params(length=0)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return figure, axes


def _axes_by_step() -> tuple[Figure, Axes]:
    figure, axes = _axes("step")
    axes.grid(axis="x", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return figure, axes


def _curve(
    title: str,
    name: str,
    points: Sequence[Point],
    evaluations: Sequence[dict[str, float]],
    best: dict[str, float] | None,
) -> Chart:
    figure, axes = _axes_by_step()
    steps, values = [p.step for p in points], [p.flat()[name] for p in points]
    axes.plot(steps, values, color=Ink.BLUE, label="train", gid=f"{name}-train", alpha=0.9)
    alt = f"train {_shown(values[0])} to {_shown(values[-1])}"
    evaluations = [each for each in evaluations if not math.isnan(each[name])]
    tips = {}
    if evaluations:
        axes.plot(
            [e["step"] for e in evaluations],
            [e[name] for e in evaluations],
            color=Ink.ORANGE,
            label="val",
        )
        for each in evaluations:
            gid = f"{name}-val-{each['step']}"
            axes.plot(each["step"], each[name], "o", color=Ink.ORANGE, markersize=5, gid=gid)
            tips[gid] = f"val {name} {each[name]:.4f} after step {each['step']:,}"
        alt += f", val {_shown(evaluations[0][name])} to {_shown(evaluations[-1][name])}"
    if best and not math.isnan(best[name]):
        axes.plot(
            best["step"],
            best[name],
            "o",
            markersize=11,
            markerfacecolor="none",
            markeredgewidth=1.6,
            color=Ink.TEXT,
            label="exported",
        )
        alt += f"; exported: {best[name]:.3g} after step {best['step']:,.0f}"
    axes.ticklabel_format(axis="y", useOffset=False)
    if name.endswith("accuracy"):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif _is_near_zero([*values, *(each[name] for each in evaluations)]):
        axes.set_ylim(bottom=0)
    figure.legend(loc="outside upper right", ncols=3, labelcolor=Ink.MUTED, borderaxespad=0)
    return Chart(title, inline(figure, name, f"{title} by step: {alt}.", tips))


def by_span(name: str, values: Sequence[tuple[str, float]]) -> Chart:
    """A metric by the span of the data, in order."""
    known = [(place, value) for place, (_, value) in enumerate(values) if math.isfinite(value)]
    places, shown = [place for place, _ in known], [value for _, value in known]
    with matplotlib.rc_context(STYLE):
        figure, axes = _axes_by_step()
        axes.set_xlabel("span")
        axes.plot(places, shown, "o-", color=Ink.BLUE, markersize=5)
        label = FuncFormatter(
            lambda place, _: values[int(place)][0] if 0 <= place < len(values) else ""
        )
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(label)
        axes.ticklabel_format(axis="y", useOffset=False)
        if name.endswith("accuracy"):
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        elif _is_near_zero(shown):
            axes.set_ylim(bottom=0)
        ends = f": {_shown(shown[0])} to {_shown(shown[-1])}" if shown else ""
        alt = f"{title(name)} by span{ends}."
        return Chart(title(name), inline(figure, f"{name}-by-span", alt))


def _is_near_zero(values: Sequence[float]) -> bool:
    """Whether an axis from zero shows how values differ, and not a flat line far above it."""
    known = [value for value in values if math.isfinite(value)]
    if not known or min(known) < 0:
        return False
    spread = max(known) - min(known)
    return not spread or min(known) <= spread


def _shown(value: float) -> str:
    return UNDEFINED if math.isnan(value) else f"{value:.3g}"


def _learning_rate(points: Sequence[Point]) -> Chart:
    figure, axes = _axes_by_step()
    rates = [p.learning_rate for p in points]
    axes.plot([p.step for p in points], rates, color=Ink.VIOLET)
    axes.set_ylim(bottom=0)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    alt = f"Learning rate by step: at most {max(rates):.3g}, {rates[-1]:.3g} at the end."
    return Chart("Learning rate", inline(figure, "rate", alt))


def _speed(points: Sequence[Point], mean: float, noun: str) -> Chart:
    figure, axes = _axes_by_step()
    speeds = [p.images_per_second for p in points]
    axes.plot([p.step for p in points], speeds, color=Ink.GREEN)
    label = f"mean {mean:,.0f}"
    axes.axhline(mean, color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED, label=label)
    figure.legend(loc="outside upper right", labelcolor=Ink.MUTED, borderaxespad=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    title = f"{noun.capitalize()} per second"
    alt = f"{title} by step: {mean:,.0f} on average, {max(speeds):,.0f} at most."
    return Chart(title, inline(figure, "speed", alt))


def calibration(bins: Sequence[CalibrationBin], error: float | None) -> Chart | None:
    """A reliability diagram with the number of predictions; None without predictions."""
    if not bins:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], 4.2), layout="constrained")
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        tips = {}
        for number, each in enumerate(bins):
            gid = f"bin-{number}"
            axes.bar(each.confidence, each.accuracy, 0.05, color=Ink.BLUE, gid=gid)
            below.bar(each.confidence, each.examples, 0.05, color=Ink.MUTED)
            tips[gid] = (
                f"{each.examples:,} predictions, mean confidence {each.confidence:.0%}, "
                f"accuracy {each.accuracy:.0%}"
            )
        axes.plot([0, 1], [0, 1], color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
        axes.set_ylabel("accuracy")
        below.set_ylabel("predictions")
        below.set_xlabel("confidence")
        for part in (axes, below):
            part.grid(axis="x", visible=False)
            part.tick_params(length=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        below.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        ece = "" if error is None else f"; expected calibration error {error:.1%}"
        alt = f"Accuracy by confidence{ece}."
        return Chart("Calibration", inline(figure, "calibration", alt, tips))


_RESIDUAL_BINS = 30
_POINTS = 500  # of the scatter plot; more would make the page large


def residuals(predicted: np.ndarray, actual: np.ndarray) -> list[Chart]:
    """The histogram of a regression's errors, and predicted against actual values."""
    with matplotlib.rc_context(STYLE):
        return [_residuals(predicted - actual), _scatter(predicted, actual)]


def _residuals(residuals: np.ndarray) -> Chart:
    figure, axes = _axes("predicted − actual")
    counts, edges = np.histogram(residuals, _RESIDUAL_BINS)
    tips = {}
    for number, count in enumerate(counts):
        gid = f"residual-{number}"
        low, high = edges[number : number + 2]
        axes.bar(low, count, high - low, align="edge", color=Ink.BLUE, gid=gid)
        tips[gid] = f"{count:,} from {low:.4g} to {high:.4g}"
    axes.axvline(0, color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
    axes.grid(axis="x", visible=False)
    mean, spread = residuals.mean(), residuals.std()
    alt = f"Histogram of residuals: mean {mean:.4g}, standard deviation {spread:.4g}."
    return Chart("Histogram of residuals", inline(figure, "residuals", alt, tips))


def _scatter(predicted: np.ndarray, actual: np.ndarray) -> Chart:
    figure, axes = _axes("actual", "predicted")
    axes.plot(actual[:_POINTS], predicted[:_POINTS], "o", color=Ink.BLUE, markersize=3, alpha=0.5)
    ends = [min(actual.min(), predicted.min()), max(actual.max(), predicted.max())]
    axes.plot(ends, ends, color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
    alt = (
        f"Predicted against actual values: actual from {actual.min():.4g} to {actual.max():.4g}, "
        f"predicted from {predicted.min():.4g} to {predicted.max():.4g}."
    )
    return Chart("Predicted against actual", inline(figure, "scatter", alt))


_PROBABILITY_BINS = 10


def binary(actual: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> list[Chart]:
    """The ROC curve and the calibration of a binary classifier, both of ``[examples]``."""
    with matplotlib.rc_context(STYLE):
        return [_roc(actual, probability, weight), _probabilities(actual, probability, weight)]


def rates(
    actual: np.ndarray, probability: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates from the highest threshold to the lowest: ``[thresholds]``.

    Fawcett 2006, "An introduction to ROC analysis", algorithm 1.
    """
    order = np.argsort(-probability, kind="stable")
    values = probability[order]
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of equal probabilities
    found = []
    for hits in (weight * (1 - actual), weight * actual):
        sums = np.cumsum(hits[order])[last]
        found.append(np.append(0.0, sums / sums[-1]))
    return found[0], found[1]


def _axes_of_shares(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    """Both axes from 0 to 100 %, with the diagonal."""
    figure, axes = _axes(xlabel, ylabel)
    axes.plot([0, 1], [0, 1], color=Ink.MUTED, linewidth=1.2, linestyle=_DASHED)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure, axes


def _roc(actual: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> Chart:
    false, true = rates(actual, probability, weight)
    figure, axes = _axes_of_shares("false positive rate", "true positive rate")
    axes.plot(false, true, color=Ink.BLUE)
    area = float(((false[1:] - false[:-1]) * (true[1:] + true[:-1])).sum() / 2)
    return Chart("ROC curve", inline(figure, "roc", f"ROC curve with the area {area:.3f}."))


def _probabilities(actual: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> Chart:
    figure, axes = _axes_of_shares("predicted probability", "positive")
    bins = np.minimum((probability * _PROBABILITY_BINS).astype(int), _PROBABILITY_BINS - 1)
    tips = {}
    for number in np.unique(bins):
        part = bins == number
        total = weight[part].sum()
        share, mean = (
            (weight * of)[part].sum() / total if total else 0.0 for of in (actual, probability)
        )
        gid = f"probability-{number}"
        axes.bar(mean, share, 0.05, color=Ink.BLUE, gid=gid)
        tips[gid] = f"{part.sum():,} predictions, mean {mean:.0%}, positive {share:.0%}"
    alt = f"Share of positives by predicted probability, in {_PROBABILITY_BINS} bins."
    return Chart("Calibration", inline(figure, "probabilities", alt, tips))


class _Bar(NamedTuple):
    """A bar of a timeline."""

    row: int
    begin: float
    end: float
    what: str
    text: str
    tip: str


def measured_step(timeline: dict[str, Any]) -> Chart | None:
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
        _Bar(
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
    return Chart(f"Step {timeline['step']}, as measured", _timeline("measured", rows, bars, alt))


def planned_step(plan: dict[str, Any]) -> Chart | None:
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
        _Bar(
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
    return Chart("As planned", _timeline("planned", rows, bars, alt, scale=False))


def _tip(span: dict[str, Any]) -> str:
    what = span["what"] if span["microbatch"] is None else f"{span['what']} {span['microbatch']}"
    begin, end = 1e3 * span["begin"], 1e3 * span["end"]
    return (
        f"{what}, replica {span['replica']}, stage {span['stage']}: "
        f"{begin:,.1f} to {end:,.1f} ms ({end - begin:,.1f} ms)"
    )


def _timeline(
    name: str, rows: Sequence[str], bars: Sequence[_Bar], alt: str, *, scale: bool = True
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
                color=_OF_WORK[bar.what],
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
        used = [what for what in _OF_WORK if any(bar.what == what for bar in bars)]
        figure.legend(
            [matplotlib.patches.Patch(color=_OF_WORK[what]) for what in used],
            used,
            loc="outside upper right",
            ncols=len(used),
            labelcolor=Ink.MUTED,
        )
        return inline(figure, name, alt, tips)
