"""Times and addresses of Kubeflow's objects, for tables and JSON."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.client.api import Api


def day(time: datetime.datetime | None) -> str:
    """A time for a table, in the reader's time zone."""
    return f"{time.astimezone():%Y-%m-%d %H:%M}" if time else ""


def optional_time(time: datetime.datetime | None) -> str | None:
    """A time for JSON."""
    return time.isoformat() if time else None


def links(api: Api, path: str) -> list[tuple[str, str]]:
    """A field with the address of a page of the UI; empty if the address is unknown."""
    link = api.link(path)
    return [("see", link)] if link else []
