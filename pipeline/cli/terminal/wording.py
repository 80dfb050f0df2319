"""Progress, durations and times in words."""

from __future__ import annotations

import datetime

from stagecraft.common.text import duration
from stagecraft.components.evaluator.evaluation import short
from stagecraft.pipeline.local.protocol import Event
from stagecraft.trainer_module.processes import isolation


def progress_text(event: Event) -> str:
    """One line for a ``progress`` event, such as ``step 120 of 700, 1,234 images/s``."""
    phase, total = event.get("phase", ""), event.get("total") or 0
    done: int = event.get("step") or event.get("done") or 0
    if phase == "train":
        words = [f"step {done:,}" + (f" of {total:,}" if total else "")]
        if event.get("images_per_second") is not None:
            words.append(f"{event['images_per_second']:,.0f} {event.get('noun', 'images')}/s")
        for name in ("loss", *event.get("metrics", ("accuracy",))):
            if event.get(name) is not None:
                words.append(f"{name} {short(event[name])}")
        if event.get("eta_seconds") is not None:
            words.append(f"{duration(event['eta_seconds'])} left")
        return ", ".join(words)
    if phase == "resume":
        complete = ": the training is complete" if done >= total else ""
        return f"resuming from step {done:,} of {total:,}{complete}"
    if phase == "precision":
        return f"precision {event['precision']}: {event['reason']}"
    if phase == "network":
        return isolation.warning(event["reason"])
    if phase == "weights":
        return str(event["note"])
    if phase == "wait":
        waits = f"waiting for at most {duration(event['seconds'])}"
        return f"{waits}: {event['holder']} may still use {event['file']}"
    if phase == "export":
        return "exporting the model"
    if phase == "job":
        words = [f"{event['engine']} job {event['state']}"]
        words += [f"{done} of {total} tasks done"] if total else []
        words += [f"{event['records']:,} records"] if event.get("records") else []
        return ", ".join(words)
    if phase == "restart":
        return f"restart {done:,}: {event['message']}"
    if phase == "download":
        return f"download: {done / 1e6:.1f}" + (f" of {total / 1e6:.1f}" if total else "") + " MB"
    return f"{phase}: {done:,}" + (f" of {total:,}" if total else "")


def day(time: datetime.datetime | None) -> str:
    """A time for a table, in the reader's time zone."""
    return f"{time.astimezone():%Y-%m-%d %H:%M}" if time else ""


def optional_time(time: datetime.datetime | None) -> str | None:
    """A time for JSON."""
    return time.isoformat() if time else None
