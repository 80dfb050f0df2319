"""Flink's REST API: describes the cluster; finds a job by its name, follows it, and cancels it.

https://nightlies.apache.org/flink/flink-docs-stable/docs/ops/rest_api/
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

ENDED = ("FINISHED", "FAILED", "CANCELED")

_POLL_SECONDS = 0.25
_APPEARS_SECONDS = 3.0
"""A job that the client submitted last may appear so much later."""


@dataclasses.dataclass(frozen=True)
class FlinkJob:
    """A job, as Flink lists it."""

    id: str
    state: str


@dataclasses.dataclass(frozen=True)
class FlinkRest:
    """The REST API at an address, such as ``http://localhost:8081``.

    All methods raise OSError if it does not answer.
    """

    address: str

    @classmethod
    def of(cls, master: str) -> FlinkRest:
        """The API of ``--flink_master``, which may be ``HOST:PORT``."""
        return cls(master if "://" in master else f"http://{master}")

    def overview(self) -> dict[str, Any]:
        """The version of Flink, and its slots."""
        overview: dict[str, Any] = self._get("/overview")
        return overview

    def find(self, name: str) -> FlinkJob | None:
        """The newest job of a name."""
        jobs = [job for job in self._get("/jobs/overview")["jobs"] if job["name"] == name]
        newest = max(jobs, key=lambda job: job["start-time"], default=None)
        return FlinkJob(newest["jid"], newest["state"]) if newest else None

    def progress(self, job: FlinkJob) -> dict[str, int]:
        """Tasks that are done, all tasks, and records that the tasks have written."""
        tasks = self._get(f"/jobs/{job.id}")["vertices"]
        return {
            "done": sum(task["status"] == "FINISHED" for task in tasks),
            "total": len(tasks),
            "records": sum(task["metrics"]["write-records"] for task in tasks),
        }

    def root_cause(self, job: FlinkJob) -> str:
        """The stack trace of the exception that failed the job; empty if there is none."""
        return self._get(f"/jobs/{job.id}/exceptions").get("root-exception") or ""

    def hosts(self) -> list[str]:
        """The host of each TaskManager."""
        found = self._get("/taskmanagers")["taskmanagers"]
        return [each["path"].rpartition("@")[2].rpartition(":")[0] for each in found]

    def cancel(self, name: str, deadline: float) -> str:
        """Cancels a job and waits for its end; returns the ID of a job that has not ended.

        Args:
            deadline: in the time of ``time.monotonic()``.
        """
        appears = time.monotonic() + _APPEARS_SECONDS
        cancelled = False
        while True:
            job = self.find(name)
            if job is None and time.monotonic() > appears:
                return ""
            if job is not None:
                if job.state in ENDED:
                    return ""
                if not cancelled:
                    self._ask(f"/jobs/{job.id}?mode=cancel", "PATCH")
                    cancelled = True
                if time.monotonic() > deadline:
                    return job.id
            time.sleep(_POLL_SECONDS)

    def _get(self, path: str) -> Any:
        return json.loads(self._ask(path))

    def _ask(self, path: str, method: str = "GET") -> bytes:
        import http.client
        import urllib.request  # slow, and most processes have no Flink

        request = urllib.request.Request(self.address + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                body: bytes = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"no answer in HTTP ({error!r})") from error
        return body
