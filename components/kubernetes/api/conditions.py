"""What the conditions of a job mean, whichever controller sets them."""

from __future__ import annotations

from typing import Any, NamedTuple

_DONE = ("Complete", "Succeeded")
"""Job and TrainJob, TFJob."""

_FAILED = "Failed"


class Verdict(NamedTuple):
    """What a controller says of a job."""

    state: str
    """``running``, ``done`` or ``failed``."""

    message: str = ""
    """Why, of one that failed."""


def verdict(job: dict[str, Any]) -> Verdict:
    """Of a Job, a TFJob or a TrainJob."""
    for condition in job.get("status", {}).get("conditions", ()):
        if condition.get("status") != "True":
            continue
        if condition["type"] in _DONE:
            return Verdict("done")
        if condition["type"] == _FAILED:
            parts = (condition.get("reason"), condition.get("message"))
            return Verdict("failed", ": ".join(part for part in parts if part))
    return Verdict("running")
