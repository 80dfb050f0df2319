"""What people should know of a job's pods: told once each, with the process's role in front."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagecraft.components.kubernetes.api.pod_status import Pod
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import exit_codes

STUCK_SECONDS = 300.0
"""How long a container may wait for an image, a secret or a volume that are not there."""

_LAST_LINES = 20

_INDEX = "batch.kubernetes.io/job-completion-index"
_OPERATOR = ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index")

_OTHERS = (exit_codes.LOST_PEER, exit_codes.PREEMPTED)
"""Exit codes of processes that something else has ended."""


class Notices:
    """Of one job."""

    def __init__(
        self, roles: Sequence[str], write_log: Callable[[str], Any], clock: Callable[[], float]
    ):
        """Nothing is told yet.

        Args:
            roles: names of the processes, such as ``worker 1``, by their index in the job.
            write_log: takes a line at a time.
            clock: seconds since whenever.
        """
        self._roles, self._write_log, self._clock = roles, write_log, clock
        self._last: dict[str, collections.deque[str]] = {}
        self._told: set[tuple[str, str]] = set()
        self._stuck_since: dict[str, float] = {}
        self._seen: dict[str, Pod] = {}

    def printed(self, pod: Pod, line: str) -> None:
        """A line of a pod's log."""
        self._last.setdefault(pod.uid, collections.deque(maxlen=_LAST_LINES)).append(line)
        self._write_log(f"{self.role(pod)}: {line}")

    def tell(self, who: str, what: str) -> None:
        """Tells something, unless it was told before."""
        if (who, what) not in self._told:
            self._told.add((who, what))
            self._write_log(f"{who}: {what}")

    def look(self, pods: Sequence[Pod]) -> None:
        """Tells why pods do not begin, and how they have ended.

        Args:
            pods: all that there are now.

        Raises:
            UserError: one has waited for too long for something that will not come.
        """
        now = self._clock()
        there = {pod.uid: pod for pod in pods}
        for uid, pod in self._seen.items():
            if uid not in there and pod.phase != "Failed":  # the training operator deletes them
                self._seen[uid] = pod._replace(phase="Failed", reason="it was deleted")
                self._write_log(f"{self.role(pod)}: {_end(self._seen[uid])}")
        self._seen |= there
        for pod in pods:
            role = self.role(pod)
            if pod.phase == "Failed":
                self.tell(role, _end(pod))
            if pod.phase == "Pending" and pod.unscheduled:
                self.tell(role, pod.unscheduled)
            if not pod.waiting:
                self._stuck_since.pop(pod.uid, None)
                continue
            self.tell(role, pod.waiting)
            if now - self._stuck_since.setdefault(pod.uid, now) > STUCK_SECONDS:
                raise UserError(f"{role} (pod {pod.name}) does not begin: {pod.waiting}")

    def last_words(self, pods: Iterable[Pod]) -> str:
        """How the pod ended whose own fault it seems to be, and what it printed last."""
        known = self._seen | {pod.uid: pod for pod in pods}
        failed = [pod for pod in known.values() if pod.phase == "Failed"]
        if not failed:
            return ""
        # Of those that end for good, the first; else the last of those that nobody else has ended.
        for_good = [pod for pod in failed if pod.exit_code and pod.exit_code < 128]
        own = [pod for pod in failed if pod.exit_code not in _OTHERS]
        pod = for_good[0] if for_good else (own or failed)[-1]
        lines = "".join(f"\n  {line}" for line in self._last.get(pod.uid, ()))
        return f"\n{self.role(pod)}: {_end(pod)}{lines}"

    def role(self, pod: Pod) -> str:
        """Which process a pod is, as ``worker 1``; else the pod's name."""
        kind, index = (pod.labels.get(label) for label in _OPERATOR)
        if kind and index:
            return f"{kind.lower()} {index}"
        place = pod.annotations.get(_INDEX) or pod.labels.get(_INDEX)
        if place is not None and int(place) < len(self._roles):
            return self._roles[int(place)]
        return pod.name


def _end(pod: Pod) -> str:
    code = f"exit code {pod.exit_code}" if pod.exit_code is not None else ""
    how = ", ".join(part for part in (code, pod.reason) if part)
    return f"pod {pod.name} failed: {how or 'the cluster does not say why'}"
