"""Reports on a job's pods to people: each message once, with the process's role in front."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagecraft.components.kubernetes.api.pod_status import Pod
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import exit_codes

STUCK_SECONDS = 300.0  # how long a container may wait for an image, a secret or a volume
_LAST_LINES = 20

_SECONDARY = (exit_codes.LOST_PEER, exit_codes.PREEMPTED)
"""Exit codes of processes that ended because of another process, or of the cluster."""


class PodReporter:
    """Reports on the pods of one job."""

    def __init__(
        self,
        kind: ClusterJob,
        roles: Sequence[str],
        write_log: Callable[[str], Any],
        clock: Callable[[], float],
    ):
        self._kind, self._roles, self._write_log, self._clock = kind, roles, write_log, clock
        self._last: dict[str, collections.deque[str]] = {}
        self._reported: set[tuple[str, str]] = set()
        self._stuck_since: dict[str, float] = {}
        self._seen: dict[str, Pod] = {}

    def log_line(self, pod: Pod, line: str) -> None:
        """Writes a line of a pod's log."""
        self._last.setdefault(pod.uid, collections.deque(maxlen=_LAST_LINES)).append(line)
        self._write_log(f"{self.role(pod)}: {line}")

    def report(self, subject: str, message: str) -> None:
        """Writes a message, unless it was written before."""
        if (subject, message) not in self._reported:
            self._reported.add((subject, message))
            self._write_log(f"{subject}: {message}")

    def check(self, pods: Sequence[Pod]) -> None:
        """Reports why pods do not start, and how pods ended."""
        now = self._clock()
        present = {pod.uid: pod for pod in pods}
        for uid, pod in self._seen.items():
            if uid not in present and pod.phase != "Failed":  # the training operator deletes them
                self._seen[uid] = pod._replace(phase="Failed", reason="it was deleted")
                self._write_log(f"{self.role(pod)}: {_failure(self._seen[uid])}")
        self._seen |= present
        for pod in pods:
            role = self.role(pod)
            if pod.phase == "Failed":
                self.report(role, _failure(pod))
                if pod.exit_code == exit_codes.START_ERROR:  # some controllers would try again
                    raise UserError(f"{role}: {_failure(pod)}", record=pod.name)
            if pod.phase == "Pending" and pod.unscheduled:
                self.report(role, pod.unscheduled)
            if not pod.waiting:
                self._stuck_since.pop(pod.uid, None)
                continue
            self.report(role, pod.waiting)
            if now - self._stuck_since.setdefault(pod.uid, now) > STUCK_SECONDS:
                raise UserError(
                    f"{role} (pod {pod.name}) does not start: {pod.waiting}", record=pod.name
                )

    def failure_summary(self, pods: Iterable[Pod]) -> str:
        """How the pod ended that most likely caused the failure, and its last lines."""
        known = self._seen | {pod.uid: pod for pod in pods}
        failed = [pod for pod in known.values() if pod.phase == "Failed"]
        if not failed:
            return ""
        # The first permanent failure; without one, the last failure that is not secondary.
        permanent = [
            pod for pod in failed if pod.exit_code and not exit_codes.retryable(pod.exit_code)
        ]
        primary = [pod for pod in failed if pod.exit_code not in _SECONDARY]
        pod = permanent[0] if permanent else (primary or failed)[-1]
        lines = "".join(f"\n  {line}" for line in self._last.get(pod.uid, ()))
        return f"\n{self.role(pod)}: {_failure(pod)}{lines}"

    def role(self, pod: Pod) -> str:
        """The process of a pod, as ``worker 1``, or the pod's name where that is unknown."""
        return self._kind.role(pod.labels, pod.annotations, self._roles) or pod.name


def _failure(pod: Pod) -> str:
    code = f"exit code {pod.exit_code}" if pod.exit_code is not None else ""
    reasons = ", ".join(filter(None, (code, pod.reason)))
    return f"pod {pod.name} failed: {reasons or 'the cluster gives no reason'}"
