"""What a run came to: an object for programs, a few lines for people."""

from __future__ import annotations

import pathlib
from typing import Any

from stagecraft.components.evaluator.binomial import BETTER_THAN_CONSTANT, ENOUGH
from stagecraft.pipeline.cli.state import RunState
from stagecraft.pipeline.cli.wording import duration
from stagecraft.pipeline.local.supervisor import Outcome
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training.steps import DEFAULT_EPOCHS


def failure(state: RunState, outcome: Outcome, require_blessing: bool, goes_on: str) -> str | None:
    """Why the command fails, in a paragraph; None when it doesn't.

    Args:
        state: of the run.
        outcome: how it ended.
        require_blessing: whether a model that is not good enough is a failure.
        goes_on: the command that goes on with a run that was interrupted.
    """
    if outcome.status == "interrupted":
        return f"interrupted; this command goes on from what is finished: {goes_on}"
    if outcome.status != "ok":
        where = f"{state.failed} failed: " if state.failed else ""
        return where + (node_cause(state) or outcome.cause or "see the log")
    if require_blessing and not outcome.report.get("blessed"):
        return f"the model was not blessed{_because(outcome)}"
    return None


def node_cause(state: RunState) -> str | None:
    """The failed node's own account, nearer to the cause than what the runner made of it."""
    return state.nodes[state.failed].cause if state.failed else None


def as_json(
    settings: PipelineSettings | None,
    state: RunState,
    outcome: Outcome,
    seconds: float,
    output: pathlib.Path | None,
    error: str | None,
) -> dict[str, Any]:
    """The object of ``--json``; ``error`` is in it only if there is one."""
    report = outcome.report
    found: dict[str, Any] = {
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
        found["notes"] = state.notes
    found |= {name: report[name] for name in ("timeline", "profile") if name in report}
    return found if error is None else {**found, "error": error}


def as_rows(
    settings: PipelineSettings, state: RunState, outcome: Outcome, seconds: float, log: pathlib.Path
) -> list[tuple[str, str]]:
    """Names and values for people; the last says what could be done next."""
    report = outcome.report
    found = []
    if report.get("metrics"):
        found.append(("accuracy", _accuracy(report["metrics"])))
        found.append(("blessed", "yes" if report["blessed"] else f"no{_because(outcome)}"))
        if report["blessed"]:
            found.append(("pushed", _pushed(report)))
        else:
            found.append(("pushed", "no: only a blessed model is"))
    if report.get("timeline"):
        found.append(("timeline", _timeline(report["timeline"])))
    elif settings.parallel.timeline_step and state.nodes["Trainer"].state == "done":
        found.append(("timeline", _not_watched(f"step {settings.parallel.timeline_step} was not")))
    if report.get("profile"):
        found.append(("profile", f"tensorboard --logdir {report['profile']}"))
    elif settings.parallel.profile_steps and state.nodes["Trainer"].state == "done":
        steps = settings.parallel.profile_steps
        found.append(("profile", _not_watched(f"of the steps {steps} none was")))
    if report.get("report"):
        found.append(("report", report["report"]))
    found += [("log", str(log)), ("time", _time(seconds, state.start_up_seconds))]
    next_step = _next(settings, state, report)
    return [*found, ("next", next_step)] if next_step else found


def _time(seconds: float, start_up: float | None) -> str:
    """The command's; without the start-up, it is what ``stagecraft history`` gives."""
    text = duration(seconds)
    return text if start_up is None else f"{text}, {duration(start_up)} of it to start up"


def _accuracy(metrics: dict[str, float]) -> str:
    extra = [f"{name} {metrics[key]:.3f}" for name, key in _EXTRA if key in metrics]
    return f"{metrics['accuracy']:.4f}" + (f" ({', '.join(extra)})" if extra else "")


def _timeline(watched: dict[str, Any]) -> str:
    return (
        f"step {watched['step']}: stages waited {watched['idle']:.1%} of the time "
        f"({watched['bubble']:.1%} if they were equal); in a trace viewer: {watched['trace']}"
    )


def _not_watched(what: str) -> str:
    return (
        f"none: {what} taken in this run, an earlier one had done it; with --fresh --from Trainer "
        "it is taken anew"
    )


def _pushed(report: dict[str, Any]) -> str:
    if not report["pushed"]:
        return "no"
    note = " (already: the newest version is this model)" if report.get("already_pushed") else ""
    return f"{report['pushed']}{note}"


_EXTRA = (("top 3", "top_3_accuracy"), ("loss", "loss"))


def _because(outcome: Outcome) -> str:
    reasons = outcome.report.get("not_blessed_because") or []
    return f": {'; '.join(reasons)}" if reasons else ""


def _next(settings: PipelineSettings, state: RunState, report: dict[str, Any]) -> str | None:
    if not report.get("metrics"):
        return None
    if not report["blessed"]:
        return f"train longer, such as --set {_longer(settings.train)}{_lower(settings, report)}"
    if all(node.state != "done" for name, node in state.nodes.items() if name != "Baseline"):
        return "nothing had changed; change a setting with --set, or another --config"
    if settings.data.source == "sample":
        return "that was a generated sample; the real pictures: stagecraft run --data download"
    if report["pushed"]:
        return f'tf.saved_model.load("{report["pushed"]}").signatures["serving_images"]'
    return None


def _longer(train: TrainSettings) -> str:
    """Three times as long."""
    if train.steps is not None:
        return f"train.steps={3 * train.steps}"
    return f"train.epochs={3 * (train.epochs or DEFAULT_EPOCHS):g}"


def _lower(settings: PipelineSettings, report: dict[str, Any]) -> str:
    """What else would bless the model, if it is good enough for its user."""
    metrics, wanted = report["metrics"], settings.evaluate
    if metrics["accuracy"] < wanted.min_accuracy:
        return ", or lower evaluate.min_accuracy"
    if wanted.better_than_constant and metrics.get(BETTER_THAN_CONSTANT, 1) < ENOUGH:
        return ", or turn the check off: --set evaluate.better_than_constant=false"
    return ", or give up the comparison: --set evaluate.not_worse=false"
