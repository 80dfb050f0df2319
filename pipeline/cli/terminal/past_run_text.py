"""Describes a past run in words; unknown facts are empty."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

from stagecraft.common.text import duration
from stagecraft.components.evaluator.evaluation import ACCURACY, short
from stagecraft.components.example_gen import spans
from stagecraft.pipeline.cli.terminal.wording import day

if TYPE_CHECKING:
    from stagecraft.components.metadata.rollbacks import Rollback
    from stagecraft.pipeline.history.past_run import PastRun


def short_id(run_id: str) -> str:
    """The time at which the run began, to the second; commands accept it as an ID."""
    return run_id.partition(".")[0]


def state(run: PastRun) -> str:
    """``done``, or ``failed: Trainer``."""
    return f"{run.state}: {run.component}" if run.component else run.state


def data(run: PastRun) -> str:
    """The data: source, span, first digits of its SHA-256, and number of examples."""
    folder = spans.base(run.source) if spans.has(run.source) else run.source
    source = os.path.basename(folder.rstrip("/"))
    count = f"{sum(run.examples.values()):,}" if run.examples else ""
    words = (source, spans.words(run.span), run.fingerprint[:8], count)
    return " ".join(word for word in words if word)


def time(run: PastRun) -> str:
    """The time that the run took, or has taken so far."""
    return duration(run.seconds)


def trained(run: PastRun) -> str:
    """The steps that this run trained; a cached model shows the metrics of an earlier run."""
    if "steps" not in run.metrics:
        return ""
    steps, before = int(run.metrics["steps"]), run.resumed_from or 0
    cached = any(each.name == "Trainer" and each.state == "cached" for each in run.components)
    if cached or before == steps:
        return f"{steps:,} steps, by an earlier run"
    return f"steps {before + 1:,} to {steps:,}"


def result(run: PastRun) -> str:
    """The first metric on the eval split: ``61.2%`` accuracy, or ``mse 0.123``."""
    found = run.metrics.get(run.monitor)
    if found is None:
        return ""
    return f"{found:.1%}" if run.monitor == ACCURACY else f"{run.monitor} {short(found)}"


def blessed(run: PastRun) -> str:
    """``yes`` or ``no``."""
    return "" if run.blessed is None else "yes" if run.blessed else "no"


def pushed(run: PastRun) -> str:
    """The version of the pushed model, or ``no``."""
    if run.pushed is None:
        return "" if run.blessed is None else "no"
    return os.path.basename(run.pushed)


def rollback(output: pathlib.Path, rolled_back: Rollback) -> tuple[str, ...]:
    """When, the versions served after and before, by whom, and why."""
    time = datetime.datetime.fromtimestamp(rolled_back.time).astimezone()
    versions = (str(number) for number in rolled_back[:3])
    return day(time), str(output), *versions, rolled_back.user, rolled_back.reason


def value(setting: Any) -> str:
    """A setting, as ``--set`` takes it."""
    return setting if isinstance(setting, str) else json.dumps(setting)
