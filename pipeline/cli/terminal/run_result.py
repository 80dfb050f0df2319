"""The result of a run: an object for programs, a few lines for people."""

from __future__ import annotations

import math
import pathlib
from typing import Any

from stagecraft.common.text import duration
from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    BETTER_THAN_CONSTANT,
    ENOUGH,
    EXAMPLE_COUNT,
    IMAGES,
    LOSS,
    TOP_3,
    number,
    short,
)
from stagecraft.pipeline.cli.terminal.run_view import RunState
from stagecraft.pipeline.local.supervisor import Outcome
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.settings.train import DEFAULT_EPOCHS


def failure(
    state: RunState, outcome: Outcome, require_blessing: bool, resume_command: str
) -> str | None:
    """Why the command fails, in a paragraph; None if it does not fail."""
    left = "".join(f"; {each}" for each in outcome.left)
    if outcome.status == "interrupted":
        return f"interrupted{left}; resume with: {resume_command}"
    if outcome.status != "ok":
        prefix = f"{state.failed} failed: " if state.failed else ""
        # The component's own cause is more precise than the runner's.
        of_node = state.nodes[state.failed].cause if state.failed else None
        return prefix + (of_node or outcome.cause or "see the log") + left
    if require_blessing and not outcome.report.get("blessed"):
        return f"the model was not blessed{_because(outcome)}"
    return None


def as_json(
    settings: PipelineSettings | None,
    state: RunState,
    outcome: Outcome,
    seconds: float,
    output: pathlib.Path | None,
    error: str | None,
) -> dict[str, Any]:
    """The object of ``--json``; it has ``error`` only if there is one."""
    report = outcome.report
    fields: dict[str, Any] = {
        "pipeline": settings.name if settings else None,
        "run_id": state.run_id,
        "seconds": round(seconds, 2),
        "examples": report.get("examples", {}),
        "components": {
            name: {"seconds": node.seconds, "state": node.state}
            for name, node in state.nodes.items()
        },
        "metrics": report.get("metrics", {}),
        "blessed": report.get("blessed", False),
        "pushed": report.get("pushed"),
        "report": report.get("report"),
        "output": str(output) if output else None,
    }
    if state.notes:
        fields["notes"] = state.notes
    more = ("timeline", "profile", "span", "window")
    fields |= {name: report[name] for name in more if name in report}
    return fields if error is None else {**fields, "error": error}


def as_fields(
    settings: PipelineSettings,
    state: RunState,
    outcome: Outcome,
    seconds: float,
    log: pathlib.Path,
    window: str = "",
) -> list[tuple[str, str]]:
    """Names and values for people; the last one suggests what to do next.

    Args:
        window: the spans of the window, in words.
    """
    report = outcome.report
    lines = [("window", window)] if window else []
    if report.get("metrics"):
        lines.append(_headline(report["metrics"], report.get("monitor", ACCURACY)))
        lines.append(("blessed", "yes" if report["blessed"] else f"no{_because(outcome)}"))
        if report["blessed"]:
            lines.append(("pushed", _pushed(report)))
            if gone := report.get("removed_versions"):
                kept = f"(push.keep: {settings.push.keep})"
                lines.append(("removed", f"old versions {', '.join(map(str, gone))} {kept}"))
        else:
            lines.append(("pushed", "no: the Pusher pushes only a blessed model"))
        comparison = report.get("comparison")
        if comparison and comparison not in report.get("not_blessed_because", ()):
            lines.append(("constant", comparison))
    if report.get("timeline"):
        lines.append(("timeline", _timeline(report["timeline"])))
    elif settings.parallel.timeline_step and state.nodes["Trainer"].state == "done":
        lines.append(("timeline", _not_recorded(f"step {settings.parallel.timeline_step}")))
    if report.get("profile"):
        lines.append(("profile", f"tensorboard --logdir {report['profile']}"))
    elif settings.parallel.profile_steps and state.nodes["Trainer"].state == "done":
        steps = settings.parallel.profile_steps
        lines.append(("profile", _not_recorded(f"any of the steps {steps}")))
    if report.get("report"):
        lines.append(("report", report["report"]))
    lines += [("log", str(log)), ("time", _time(seconds, state.start_up_seconds))]
    next_step = _next(settings, state, report)
    return [*lines, ("next", next_step)] if next_step else lines


def _time(seconds: float, start_up: float | None) -> str:
    """The seconds of the command; ``stagecraft history`` shows them without the start-up."""
    text = duration(seconds)
    return text if start_up is None else f"{text}, including {duration(start_up)} of startup"


def _headline(metrics: dict[str, float], monitor: str) -> tuple[str, str]:
    """The metric that the task monitors, and the others beside it."""
    left_out = (monitor, EXAMPLE_COUNT, BETTER_THAN_CONSTANT)
    others = {name: name for name in metrics if name not in left_out}
    names = _OF_CLASSES if TOP_3 in metrics else others
    extra = [f"{shown} {short(metrics[key])}" for key, shown in names.items() if key in metrics]
    value = number(metrics[monitor]) if monitor in metrics else "unknown"
    return monitor, value + (f" ({', '.join(extra)})" if extra else "")


def _timeline(timeline: dict[str, Any]) -> str:
    return (
        f"step {timeline['step']}: stages waited {timeline['idle']:.1%} of the time "
        f"({timeline['bubble']:.1%} with equal stages); open in a trace viewer: "
        f"{timeline['trace']}"
    )


def _not_recorded(steps: str) -> str:
    return (
        f"none: this run did not train {steps}, an earlier run did; use --fresh --from Trainer to "
        "train again"
    )


def _pushed(report: dict[str, Any]) -> str:
    if not report["pushed"]:
        why = report.get("not_pushed_because")
        return f"no: {why}; push it again with --from Pusher" if why else "no"
    note = " (already: the newest version is this model)" if report.get("already_pushed") else ""
    return f"{report['pushed']}{note}"


_OF_CLASSES = {TOP_3: "top 3", LOSS: "loss"}


def _because(outcome: Outcome) -> str:
    reasons = outcome.report.get("not_blessed_because") or []
    return f": {'; '.join(reasons)}" if reasons else ""


def _next(settings: PipelineSettings, state: RunState, report: dict[str, Any]) -> str | None:
    if not report.get("metrics"):
        return None
    if not report["blessed"]:
        return f"train longer, such as --set {_longer(settings.train)}{_lower(settings, report)}"
    if all(node.state != "done" for name, node in state.nodes.items() if name != "Baseline"):
        return "nothing had changed; change a setting with --set or --config"
    task = settings.task.found
    if settings.data.source == "sample" and task.noun == IMAGES:
        return "this was a generated sample; for real images: stagecraft run --data download"
    if report["pushed"]:
        return f'tf.saved_model.load("{report["pushed"]}").signatures["{task.first_signature}"]'
    return None


def _longer(train: TrainSettings) -> str:
    """A training three times as long."""
    if train.steps is not None:
        return f"train.steps={3 * train.steps}"
    return f"train.epochs={3 * (train.epochs or DEFAULT_EPOCHS):g}"


def _lower(settings: PipelineSettings, report: dict[str, Any]) -> str:
    """The setting that would bless this model, if it is good enough for its user."""
    metrics, wanted = report["metrics"], settings.evaluate
    if not math.isfinite(metrics.get(LOSS, 0.0)):
        return ""
    if metrics.get(ACCURACY, 1) < wanted.min_accuracy:
        return ", or lower evaluate.min_accuracy"
    for name, bounds in wanted.thresholds.items():
        value = metrics.get(name, float("nan"))
        if bounds.min is not None and value < bounds.min:
            return f", or lower evaluate.thresholds.{name}.min"
        if bounds.max is not None and value > bounds.max:
            return f", or raise evaluate.thresholds.{name}.max"
    if wanted.better_than_constant and metrics.get(BETTER_THAN_CONSTANT, 1) < ENOUGH:
        return ", or disable the check: --set evaluate.better_than_constant=false"
    return ", or disable the comparison: --set evaluate.not_worse=false"
