"""``stagecraft compare``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from stagecraft.common.errors import UserError
from stagecraft.components.evaluator.evaluation import UNDEFINED
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console, past_run_text

if TYPE_CHECKING:
    from stagecraft.components.metadata.run_metadata import ComponentRun
    from stagecraft.pipeline.history.past_run import PastRun

_DIFFERENCE = "B − A"


@click.command(cls=Command, short_help="Show two past runs side by side.")
@click.argument("a", callback=options.not_empty)
@click.argument("b", required=False, callback=options.not_empty)
@options.json_option
def compare(a: str, b: str | None, as_json: bool) -> None:
    """Show the differences between two runs: settings, code, data, metrics, seconds.

    A and B are runs of this machine. To name the newest run in an output folder, give the folder.
    To name another run, give FOLDER@ID, or only the ID if the run is below runs/. You can shorten
    an ID, as in the output of `stagecraft history`. Without B, the command compares A with the
    previous run in its folder.

    \b
    stagecraft compare runs/quickstart
    stagecraft compare runs/first runs/second
    stagecraft compare runs/first@2026-01-02T03:04:05 2026-01-03

    Exit code: 0; 1 if no run, or more than one, has this ID.
    """
    from stagecraft.pipeline.history import past_run, runs

    newer = runs.find(a if b is None else b)
    older = runs.previous(newer) if b is None else runs.find(a)
    if older == newer:
        raise UserError(
            f"{newer.address}: A and B are the same run; name two runs", value=newer.address
        )
    first, second = past_run.read(older), past_run.read(newer)
    if as_json:
        console.say_json(_as_json(first, second))
        return
    _show_runs(first, second)
    _show_settings(first, second)
    _show_metrics(first, second)
    _show_components(first, second)


def _as_json(a: PastRun, b: PastRun) -> dict[str, Any]:
    both = a.metrics.keys() & b.metrics.keys()
    return {
        "a": a.as_json(),
        "b": b.as_json(),
        "settings": {name: {"a": one, "b": other} for name, one, other in _settings(a, b)},
        "differences": {name: b.metrics[name] - a.metrics[name] for name in sorted(both)},
    }


def _settings(a: PastRun, b: PastRun) -> list[tuple[str, Any, Any]]:
    """The settings that differ, of those that are known of both runs."""
    both = sorted(a.settings.keys() & b.settings.keys())
    values = ((name, a.settings[name], b.settings[name]) for name in both)
    return [(name, one, other) for name, one, other in values if one != other]


def _show_runs(a: PastRun, b: PastRun) -> None:
    lines = [("run", a.id, b.id), ("output", str(a.output), str(b.output))]
    for name, text in (
        ("state", past_run_text.state),
        ("time", past_run_text.time),
        ("data", past_run_text.data),
        ("topology", lambda run: run.topology),
        ("trained", past_run_text.trained),
        ("blessed", past_run_text.blessed),
        ("pushed", past_run_text.pushed),
    ):
        if text(a) or text(b):
            lines.append((name, text(a), text(b)))
    console.table(("", "A", "B"), lines)
    for name, run in (("A", a), ("B", b)):
        if run.cause:
            console.say(f"{name} failed: {run.cause}")


def _show_settings(a: PastRun, b: PastRun) -> None:
    value = past_run_text.value
    lines = [(name, value(one), value(other)) for name, one, other in _settings(a, b)]
    console.say("")
    if lines:
        console.table(("SETTING", "A", "B"), lines)
    else:
        console.say("No setting differs.")
    for name, run in (("A", a), ("B", b)):
        if not run.settings_are_whole:
            known = {setting.partition(".")[0] for setting in run.settings}
            sections = ", ".join(f"`{section}`" for section in sorted(known))
            what = f"Only its settings {sections} are" if known else "None of its settings is"
            console.say(f"{name} has no report. {what} known.")


def _show_metrics(a: PastRun, b: PastRun) -> None:
    lines = []
    names = a.metrics.keys() | b.metrics.keys()
    for name in sorted(names, key=lambda each: (each != b.monitor, each)):
        one, other = a.metrics.get(name), b.metrics.get(name)
        difference = "" if one is None or other is None else _number(other - one, sign="+")
        lines.append((name, _number(one), _number(other), difference))
    if lines:
        console.say("")
        console.table(("METRIC", "A", "B", _DIFFERENCE), lines)


def _show_components(a: PastRun, b: PastRun) -> None:
    of_a = {each.name: each for each in a.components}
    of_b = {each.name: each for each in b.components}
    lines = []
    for name in {**of_b, **of_a}:
        one, other = of_a.get(name), of_b.get(name)
        difference = ""
        if one and other and one.state == other.state == "done":
            difference = f"{round(other.seconds - one.seconds, 1) + 0.0:+.1f} s"  # no -0.0
        code, other_code = a.code.get(name, ""), b.code.get(name, "")
        if code != other_code:
            code = f"{code or 'unknown'} -> {other_code or 'unknown'}"
        lines.append((name, _seconds(one), _seconds(other), difference, code))
    if lines:
        console.say("")
        console.table(("COMPONENT", "A", "B", _DIFFERENCE, "CODE"), lines)


def _seconds(component: ComponentRun | None) -> str:
    if component is None:
        return ""
    if component.state == "done":
        return f"{component.seconds:.1f} s"
    if component.original_seconds is None:
        return component.state
    return f"{component.state} ({component.original_seconds:.1f} s)"


def _number(value: float | None, *, sign: str = "") -> str:
    if value is None:
        return ""
    if math.isnan(value):
        return UNDEFINED
    if float(value).is_integer():
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.4f}" if abs(value) < 10 else f"{value:{sign},.1f}"
