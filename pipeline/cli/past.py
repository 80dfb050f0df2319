"""A past run in words, for the commands that show some; empty where nothing is known."""

from __future__ import annotations

import json
import os
from typing import Any

from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.wording import duration
from stagecraft.pipeline.history.past_run import PastRun
from stagecraft.schemas.errors import UserError


def refuse(error: UserError, *, as_json: bool) -> int:
    """Says why there is nothing to show; the command's exit code."""
    if as_json:
        console.say_json({"error": str(error)})
    console.error(str(error))
    return 1


def short_id(run_id: str) -> str:
    """When it began, to the second; commands take it for the whole ID."""
    return run_id.partition(".")[0]


def state(run: PastRun) -> str:
    """``done``, or ``failed: Trainer``."""
    return f"{run.state}: {run.component}" if run.component else run.state


def data(run: PastRun) -> str:
    """What was read: source, beginning of the content's SHA-256, and examples."""
    source = os.path.basename(run.source.rstrip("/"))
    count = f"{sum(run.examples.values()):,}" if run.examples else ""
    return " ".join(word for word in (source, run.fingerprint[:8], count) if word)


def time(run: PastRun) -> str:
    """How long it took, or takes so far."""
    return duration(run.seconds)


def trained(run: PastRun) -> str:
    """Which steps were taken, if any: figures of an earlier training are shown all the same."""
    if "steps" not in run.metrics:
        return ""
    steps, before = int(run.metrics["steps"]), run.resumed_from or 0
    cached = any(each.name == "Trainer" and each.state == "cached" for each in run.components)
    if cached or before == steps:
        return f"by an earlier run, {steps:,} steps"
    return f"steps {before + 1:,} to {steps:,}"


def accuracy(run: PastRun) -> str:
    """On the eval split."""
    found = run.metrics.get("accuracy")
    return "" if found is None else f"{found:.1%}"


def blessed(run: PastRun) -> str:
    """``yes`` or ``no``."""
    return "" if run.blessed is None else "yes" if run.blessed else "no"


def pushed(run: PastRun) -> str:
    """The version, or ``no``."""
    if run.pushed is None:
        return "" if run.blessed is None else "no"
    return os.path.basename(run.pushed)


def value(setting: Any) -> str:
    """A setting, as ``--set`` takes it."""
    return setting if isinstance(setting, str) else json.dumps(setting)
