"""What ``stagecraft compare`` does: find two runs, show what differs."""

from __future__ import annotations

from typing import Any

from stagecraft.components.metadata.component_runs import ComponentRun
from stagecraft.pipeline.cli import console, past
from stagecraft.pipeline.history import past_run, runs
from stagecraft.pipeline.history.past_run import PastRun
from stagecraft.schemas.errors import UserError

_DIFFERENCE = "B − A"


def show(a: str, b: str | None, *, as_json: bool) -> int:
    """Shows two runs; the command's exit code.

    Args:
        a: names a run.
        b: names the other; None: ``a`` is held against the one before it, which comes first.
        as_json: as an object, for programs.
    """
    try:
        newer = runs.named(a if b is None else b)
        older = runs.before(newer) if b is None else runs.named(a)
        if older == newer:
            raise UserError(f"{newer.address}: both are the same run; name two")
        first, second = past_run.read(older), past_run.read(newer)
    except UserError as error:
        return past.refuse(error, as_json=as_json)
    if as_json:
        console.say_json(_as_json(first, second))
        return 0
    _show_runs(first, second)
    _show_settings(first, second)
    _show_metrics(first, second)
    _show_components(first, second)
    return 0


def _as_json(a: PastRun, b: PastRun) -> dict[str, Any]:
    both = a.metrics.keys() & b.metrics.keys()
    return {
        "a": a.as_json(),
        "b": b.as_json(),
        "settings": {name: {"a": one, "b": other} for name, one, other in _settings(a, b)},
        "differences": {name: b.metrics[name] - a.metrics[name] for name in sorted(both)},
    }


def _settings(a: PastRun, b: PastRun) -> list[tuple[str, Any, Any]]:
    """Those that differ, of those that are known of both."""
    both = sorted(a.settings.keys() & b.settings.keys())
    return [
        (name, a.settings[name], b.settings[name])
        for name in both
        if a.settings[name] != b.settings[name]
    ]


def _show_runs(a: PastRun, b: PastRun) -> None:
    lines = [("run", a.id, b.id), ("output", str(a.output), str(b.output))]
    for name, words in (
        ("state", past.state),
        ("time", past.time),
        ("data", past.data),
        ("topology", lambda run: run.topology),
        ("trained", past.trained),
        ("blessed", past.blessed),
        ("pushed", past.pushed),
    ):
        if words(a) or words(b):
            lines.append((name, words(a), words(b)))
    console.columns(("", "A", "B"), lines)
    for name, run in (("A", a), ("B", b)):
        if run.cause:
            console.say(f"{name} failed: {run.cause}")


def _show_settings(a: PastRun, b: PastRun) -> None:
    lines = [(name, past.value(one), past.value(other)) for name, one, other in _settings(a, b)]
    console.say("")
    if lines:
        console.columns(("SETTING", "A", "B"), lines)
    else:
        console.say("No setting differs.")
    for name, run in (("A", a), ("B", b)):
        if not run.settings_are_whole:
            known = {setting.partition(".")[0] for setting in run.settings}
            console.say(
                f"{name} has no report: of its settings, known are those of "
                f"{', '.join(sorted(known)) or 'no component'}."
            )


def _show_metrics(a: PastRun, b: PastRun) -> None:
    lines = []
    names = sorted(a.metrics.keys() | b.metrics.keys())
    for name in sorted(names, key=lambda name: name != "accuracy"):
        one, other = a.metrics.get(name), b.metrics.get(name)
        difference = "" if one is None or other is None else _number(other - one, sign="+")
        lines.append((name, _number(one), _number(other), difference))
    if lines:
        console.say("")
        console.columns(("METRIC", "A", "B", _DIFFERENCE), lines)


def _show_components(a: PastRun, b: PastRun) -> None:
    ours = {each.name: each for each in a.components}
    theirs = {each.name: each for each in b.components}
    lines = []
    for name in {**theirs, **ours}:
        one, other = ours.get(name), theirs.get(name)
        difference = ""
        if one and other and one.state == other.state == "done":
            difference = f"{round(other.seconds - one.seconds, 1) + 0.0:+.1f} s"  # no -0.0
        code = [run.code.get(name, "") for run in (a, b)]
        lines.append((name, _seconds(one), _seconds(other), difference, _code(*code)))
    if lines:
        console.say("")
        console.columns(("COMPONENT", "A", "B", _DIFFERENCE, "CODE"), lines)


def _seconds(component: ComponentRun | None) -> str:
    if component is None:
        return ""
    if component.state == "done":
        return f"{component.seconds:.1f} s"
    if component.original_seconds is None:
        return component.state
    return f"{component.state} ({component.original_seconds:.1f} s)"


def _code(a: str, b: str) -> str:
    if a == b:
        return a
    return f"{a or 'unknown'} -> {b or 'unknown'}"


def _number(value: float | None, *, sign: str = "") -> str:
    if value is None:
        return ""
    if float(value).is_integer():
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.4f}" if abs(value) < 10 else f"{value:{sign},.1f}"
