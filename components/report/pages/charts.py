"""Charts of a training: curves and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from stagecraft.components.evaluator.evaluation import UNDEFINED, CalibrationBin
from stagecraft.components.report.pages.formats import title
from stagecraft.components.report.pages.svg import STYLE, Ink, inline
from stagecraft.components.report.report_data import Training
from stagecraft.trainer_module.training.monitoring.curve import Point

SIZE = (6.2, 3.3)  # inches, of 72 units


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


def _axes() -> tuple[Figure, Axes]:
    """A chart by step."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.grid(axis="x", visible=False)
    axes.tick_params(length=0)
    axes.set_xlabel("step")
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
    figure, axes = _axes()
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
    if name.endswith("accuracy"):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif not min(values + [e[name] for e in evaluations]) < 0:
        axes.set_ylim(bottom=0)
    figure.legend(loc="outside upper right", ncols=3, labelcolor=Ink.MUTED, borderaxespad=0)
    return Chart(title, inline(figure, name, f"{title} by step: {alt}.", tips))


def _shown(value: float) -> str:
    return UNDEFINED if math.isnan(value) else f"{value:.3g}"


def _learning_rate(points: Sequence[Point]) -> Chart:
    figure, axes = _axes()
    rates = [p.learning_rate for p in points]
    axes.plot([p.step for p in points], rates, color=Ink.VIOLET)
    axes.set_ylim(bottom=0)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    alt = f"Learning rate by step: at most {max(rates):.3g}, {rates[-1]:.3g} at the end."
    return Chart("Learning rate", inline(figure, "rate", alt))


def _speed(points: Sequence[Point], mean: float, noun: str) -> Chart:
    figure, axes = _axes()
    speeds = [p.images_per_second for p in points]
    axes.plot([p.step for p in points], speeds, color=Ink.GREEN)
    dashed = (0, (4, 3))
    axes.axhline(mean, color=Ink.MUTED, linewidth=1.2, linestyle=dashed, label=f"mean {mean:,.0f}")
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
        figure = Figure(figsize=(6.2, 4.6), layout="constrained")
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
        axes.plot([0, 1], [0, 1], color=Ink.MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
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
