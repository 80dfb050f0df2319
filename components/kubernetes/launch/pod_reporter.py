"""Reports on a job's pods to people: each message once, with the process's role in front."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api.pod_status import OUT_OF_MEMORY, Pod
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob
from stagecraft.trainer_module.processes import exit_codes

STUCK_SECONDS = 300.0  # how long a container may wait for an image, a secret or a volume
_LAST_LINES = 20

_MISSING = re.compile(
    r"error looking up service account|no PriorityClass with name|"
    r"persistentvolumeclaim \"[^\"]*\" not found"
)
"""Reasons that last until a person creates an object. Room and quotas may come by themselves."""

_RANDOM = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}(?=\W)")
"""The random end of a pod's name: each attempt to create the pod has another
(k8s.io/apimachinery/pkg/util/rand)."""

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
        self._missed: dict[str, int] = {}  # checks since a pod that had not ended was there
        self._ended: set[str] = set()  # pods whose end was reported, of those that are gone

    def log_line(self, pod: Pod, line: str) -> None:
        """Writes a line of a pod's log."""
        self._last.setdefault(pod.uid, collections.deque(maxlen=_LAST_LINES)).append(line)
        self._write_log(f"{self.role(pod)}: {line}")

    def report(self, subject: str, message: str) -> None:
        """Writes a message, unless it was written before."""
        key = (subject, _RANDOM.sub("", message))
        if key not in self._reported:
            self._reported.add(key)
            self._write_log(f"{subject}: {message}")

    def report_event(self, subject: str, message: str, has_all_pods: bool) -> None:
        """Writes the message of a warning, unless its cause was written before.

        Raises:
            UserError: pods cannot be created for more than five minutes, and a person must help.
        """
        cause = _cause(message)
        known = [text for _, text in self._reported]
        plain = _RANDOM.sub("", message)
        if not any(_contains(text, cause) or _contains(plain, _cause(text)) for text in known):
            self.report(subject, message)
        if has_all_pods:
            self._stuck_since.pop(subject, None)
        elif _MISSING.search(message):
            self._fail_if_stuck(subject, f"pods cannot be created: {message}", subject)

    def check(self, pods: Sequence[Pod], gone: Iterable[Pod] = ()) -> None:
        """Reports why pods do not start, and how pods ended.

        Args:
            pods: those that exist.
            gone: the last state of those that no longer exist, as far as it is known.

        Raises:
            UserError: a pod can never start, or has not started for more than five minutes.
        """
        present = {pod.uid: pod for pod in pods}
        for pod in gone:
            if pod.uid not in present and (pod.is_over or pod.uid in self._seen):
                self._seen[pod.uid] = pod
        ended = any(
            pod.phase == "Succeeded" and self.role(pod) == self._roles[0]
            for pod in (self._seen | present).values()
        )
        for uid, pod in list(self._seen.items()):
            if uid in present or uid in self._ended:
                continue
            if not pod.is_over:
                missed = self._missed.setdefault(uid, 0)
                self._missed[uid] += 1
                if missed == 0:  # the watch may be a moment late
                    continue
                pod = pod._replace(phase="Failed", reason=pod.reason or "it was deleted")
                self._seen[uid] = pod
            self._ended.add(uid)
            # Controllers delete the other pods when the first process has succeeded.
            if pod.phase == "Failed" and not ended:
                self._report_failure(pod)
        self._seen |= present
        for pod in pods:
            role = self.role(pod)
            if pod.phase == "Failed" and not (ended and pod.deleted):
                self._report_failure(pod)
            waiting = pod.waiting
            if pod.phase == "Pending" and pod.unscheduled:
                self.report(role, pod.unscheduled)
                waiting = pod.unscheduled if _MISSING.search(pod.unscheduled) else None
            if not waiting:
                self._stuck_since.pop(pod.uid, None)
                continue
            self.report(role, waiting)
            self._fail_if_stuck(
                pod.uid, f"{role} (pod {pod.name}) does not start: {waiting}", pod.name
            )

    def observe(self, pods: Iterable[Pod]) -> None:
        """Takes over states without a report; the last one of a pod counts."""
        self._seen |= {pod.uid: pod for pod in pods}

    def permanent(self) -> Pod | None:
        """The first pod that failed with an error that another attempt would repeat."""
        return next(
            (
                pod
                for pod in self._seen.values()
                if pod.exit_code and not exit_codes.retryable(pod.exit_code)
            ),
            None,
        )

    def describe(self, uids: Iterable[str]) -> str:
        """Names the first known pod of ``uids``, with its role and how it ended."""
        pod = next((self._seen[uid] for uid in uids if uid in self._seen), None)
        if pod is None:
            return "a pod"
        why = pod.reason or "it was deleted"
        return f"pod {pod.name} ({self.role(pod)}; {why})"

    def failure_summary(self, message: str, controller_ended: bool) -> str:
        """How the pod ended that most likely caused the failure, and its last lines.

        Args:
            message: what is known of the failure; the summary does not repeat it.
            controller_ended: whether the job's controller ended it, which may delete all pods.
        """
        failed = [pod for pod in self._seen.values() if pod.phase == "Failed"]
        # The first permanent failure; without one, the last failure that is not secondary.
        primary = [pod for pod in failed if pod.exit_code not in _SECONDARY]
        candidates = primary or failed
        if not candidates and controller_ended:
            candidates = [pod for pod in self._seen.values() if pod.uid in self._last][:1]
        if not candidates:
            return ""
        pod = self.permanent() or candidates[-1]
        how = _failure(pod) if pod.phase == "Failed" else f"pod {pod.name}"
        lines = [f"  {line}" for line in self._last.get(pod.uid, ())]
        if how not in message:
            lines.insert(0, f"{self.role(pod)}: {how}")
        return "".join(f"\n{line}" for line in lines)

    def role(self, pod: Pod) -> str:
        """The process of a pod, as ``worker 1``, or the pod's name where that is unknown."""
        return self._kind.role(pod.labels, pod.annotations, self._roles) or pod.name

    def _report_failure(self, pod: Pod) -> None:
        role = self.role(pod)
        self.report(role, _failure(pod))
        if pod.exit_code == exit_codes.START_ERROR:  # some controllers would try again
            raise UserError(f"{role}: {_failure(pod)}", record=pod.name)

    def _fail_if_stuck(self, key: str, message: str, record: str) -> None:
        now = self._clock()
        if now - self._stuck_since.setdefault(key, now) > STUCK_SECONDS:
            raise UserError(message, record=record)


def _cause(message: str) -> str:
    """A message without the reason at its start, such as ``FailedScheduling``."""
    return _RANDOM.sub("", message.partition(": ")[2] or message)


def _contains(text: str, cause: str) -> bool:
    """Whether a text has a cause; "exit code 137" does not have "exit code 1"."""
    return re.search(rf"{re.escape(cause)}(?!\w)", text) is not None


def _failure(pod: Pod) -> str:
    code = f"exit code {pod.exit_code}" if pod.exit_code is not None else ""
    reasons = ", ".join(filter(None, (code, pod.reason)))
    if pod.reason.startswith(OUT_OF_MEMORY):
        limit = f"memory limit {pod.memory_limit}" if pod.memory_limit else "no memory limit"
        reasons += f" ({limit}; kubeflow.steps.Trainer.memory sets it)"
    return f"pod {pod.name} failed: {reasons or 'the cluster gives no reason'}"
