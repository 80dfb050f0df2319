"""Creates or adopts a training's job on the cluster, follows it, and deletes it if it fails.

It reports on the pods to people: each message once, with the process's role in front.
"""

from __future__ import annotations

import collections
import datetime
import functools
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import pod_logs
from stagecraft.components.kubernetes.api.connection import (
    Refused,
    Unreachable,
    parse_time,
    patiently,
)
from stagecraft.components.kubernetes.api.objects import Json, Objects
from stagecraft.components.kubernetes.api.pod_status import OUT_OF_MEMORY, Pod, PodWatch
from stagecraft.components.kubernetes.jobs.cluster_job import (
    ClusterJob,
    JobRefusedError,
    JobState,
)
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL
from stagecraft.trainer_module.checkpointing.lease import LeaseLostError
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


_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

POLL_SECONDS = 2.0

EVENTS_SECONDS = 15.0  # between requests for the cluster's events, while processes are missing


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


class MissingKindError(JobRefusedError):
    """The cluster does not serve a kind of job."""

    def __init__(self, kind: ClusterJob):
        super().__init__(
            f"kubeflow.job.kind: {kind.name} needs {kind.controller}, and the cluster has no "
            f"{kind.plural}.{kind.group}/{kind.version}; install it, or use kubeflow.job.kind: job",
            status=404,
            setting="kubeflow.job.kind",
            value=kind.name,
            suggestion="kubeflow.job.kind: job",
        )


class JobFailedError(UserError):
    """A job failed."""

    def __init__(self, name: str, reason: str, pod: str):
        super().__init__(f"{name} failed: {reason}{pod}", record=name)
        self.reason, self.pod = reason, pod


class TrainingJob:
    """The objects of one training, of which the last one is the job."""

    def __init__(
        self,
        client: Any,
        namespace: str,
        kind: ClusterJob,
        objects: Sequence[Json],
        roles: Sequence[str],
        *,
        adopts: bool = True,
        max_lost_pods: int | None = None,
        max_restarts: int = 0,
        write_log: Callable[[str], Any] = lambda line: print(line, file=sys.stderr, flush=True),
        sleep: Callable[[float], Any] = time.sleep,
        check: Callable[[], Any] = lambda: None,
    ):
        """Creates nothing yet.

        Args:
            roles: names of the processes, such as ``worker 1``, by their index in the job.
            adopts: whether to follow an existing job; otherwise it is replaced.
            max_lost_pods: lost pods after which the training fails; None: the controller counts.
            max_restarts: how often to start the job anew after its controller has ended it for
                a pod that the cluster took away.
            check: raises LeaseLostError if another training took the checkpoints.
        """
        self._client, self._namespace = client, namespace
        self._objects = Objects(client, namespace)
        *self._helpers, self._job = objects
        self._selector = f"{JOB_LABEL}={self._job['metadata']['name']}"
        self._watch = PodWatch(client, namespace, self._selector)
        self._kind, self._count = kind, len(roles)
        self._adopts, self._max_lost_pods = adopts, max_lost_pods
        self._restarts, self._max_restarts = 0, max_restarts
        self._write_log, self._sleep, self._check_lease = write_log, sleep, check
        self._reporter = PodReporter(kind, roles, write_log, lambda: time.monotonic())
        self._uid: str | None = None
        self._given_up: JobState | None = None  # the end, if this launcher ended the job
        self.is_over = False  # whether its pods have ended, or end now
        self._ended = threading.Lock()
        self._pods: list[Pod] = []
        self._lost: set[str] = set()
        self._refused: set[tuple[str, int]] = set()
        self._events_read = time.monotonic()

    @property
    def name(self) -> str:
        """Kind and name of the job, for people."""
        return f"{self._job['kind']} {self._job['metadata']['name']}"

    def run(self) -> None:
        """Returns when the training is done. Any error deletes the job."""
        ended = JobState("running")
        try:
            ended = self._follow(self._start())
            while self._starts_anew(ended):
                self._uid, ended = None, JobState("running")
                ended = self._follow(self._start())
        except JobRefusedError:  # nothing to delete
            self._ended.acquire(blocking=False)
            self.is_over = True
            raise
        except LeaseLostError as error:
            if error.holder is not None and error.holder.name == self._job["metadata"]["name"]:
                self._ended.acquire(blocking=False)  # another attempt has adopted the job
            raise
        finally:
            if ended.state == "running":
                self.delete()
            else:
                self.is_over = True
            self._ended.acquire(blocking=False)  # a finished job keeps its logs: ttl_seconds
        if ended.state == "failed":
            by_controller = ended is not self._given_up
            summary = self._reporter.failure_summary(ended.message, by_controller)
            raise JobFailedError(self.name, ended.message, summary)

    def _starts_anew(self, ended: JobState) -> bool:
        """Whether the job failed only because the cluster took a pod away."""
        if (
            ended.state != "failed"
            or not self._kind.fails_with_any_pod(ended)
            or self._restarts == self._max_restarts
            or self._reporter.permanent() is not None
        ):
            return False
        self._restarts += 1
        self._lost.clear()
        pod = self._reporter.describe(self._watch.deleted())
        self._write_log(
            f"{self.name}: the cluster took away {pod}, and {self._kind.controller} ended the job. "
            "This step starts the job again from the newest checkpoint (restart "
            f"{self._restarts} of {self._max_restarts})."
        )
        return True

    def delete(self) -> None:
        """Requests the job's deletion once, and does not wait: the process may end any moment.

        Any thread may call it. After the job's end, it does nothing.
        """
        if not self._ended.acquire(blocking=False):
            return
        try:
            self._objects.delete(self._job, self._uid)
            self.is_over = True
        except UserError as error:
            _log.error("%s Its pods end when the heartbeat expires.", error)

    def _start(self) -> datetime.datetime:
        begun = time.monotonic()
        while (job := self._create_or_adopt(time.monotonic() - begun)) is None:
            self._check_lease()
            self._sleep(POLL_SECONDS)
        self._uid = job["metadata"]["uid"]
        owner = {
            "apiVersion": self._job["apiVersion"],
            "kind": self._job["kind"],
            "name": job["metadata"]["name"],
            "uid": self._uid,
        }
        for helper in self._helpers:  # Kubernetes deletes them with the job
            owned = helper | {"metadata": helper["metadata"] | {"ownerReferences": [owner]}}
            while not self._create_helper(owned):
                self._sleep(POLL_SECONDS)
        return parse_time(job["metadata"]["creationTimestamp"])

    def _create_or_adopt(self, waited: float) -> Json | None:
        """The job; None: not yet."""
        job = self._ask(lambda: self._objects.get(self._job))
        if job is None:
            # Two trainings must not write the same checkpoints. A lost node's pod never ends.
            left = [pod for pod in self._ask(self._all_pods) if not pod.is_over]
            if left and waited < STUCK_SECONDS:
                self._reporter.report(
                    self.name, f"waiting for pods of an earlier job ({len(left)} left)"
                )
                return None
            created = self._ask(lambda: self._create(self._job))
            if created is not None:
                _log.info("%s: created in namespace %s", self.name, self._namespace)
            return created
        metadata = job["metadata"]
        if "deletionTimestamp" in metadata:
            if waited > STUCK_SECONDS:
                raise UserError(
                    f"{self.name}: an earlier job of this name still exists {waited:.0f} s after "
                    f"its deletion; see its finalizers: {metadata.get('finalizers', [])}",
                    record=self.name,
                )
            self._reporter.report(self.name, "waits until the earlier job of this name is deleted")
            return None
        if self._kind.state(job).state == "failed" or not self._adopts:
            _log.info("%s: deleting the job of an earlier attempt", self.name)
            self._ask(lambda: self._objects.delete(self._job, metadata["uid"]))
            self._adopts = True
            return None
        _log.info("%s: adopting the running job", self.name)
        owners = self._job["metadata"].get("ownerReferences", [])
        if metadata.get("ownerReferences", []) == owners:
            return job
        change = {"metadata": {"ownerReferences": owners}}
        return self._ask(lambda: self._objects.patch(self._job, change))

    def _create_helper(self, helper: Json) -> bool:
        """Whether this job's helper exists. Deletes the helper of an earlier job."""
        if self._ask(lambda: self._create(helper)) is not None:
            return True
        other = self._ask(lambda: self._objects.get(helper))
        if other is None:
            return False
        metadata = other["metadata"]
        if any(owner["uid"] == self._uid for owner in metadata.get("ownerReferences", ())):
            return True
        self._ask(lambda: self._objects.delete(helper, metadata["uid"]))
        return False

    def _create(self, body: Json) -> Json | None:
        """Creates the object; None if it exists, or a quota changed during the request."""
        try:
            return self._objects.create(body)
        except Refused as error:
            if error.status == 409:
                return None
            # Without the namespace, too, the server answers 404.
            if error.status == 404 and self._kind.needs_operator and "namespaces" not in str(error):
                raise MissingKindError(self._kind) from None
            if error.transient or body is not self._job:
                raise
            missing = [
                f"To create the {required.title}, {required.advice}."
                for required in self._kind.required_objects(self._namespace)
                if required.title.partition(" ")[0] in str(error)
            ]
            text = " ".join([str(error), *missing])
            raise JobRefusedError(text, status=error.status, record=self.name) from None

    def _all_pods(self) -> list[Pod]:
        """All pods of the job, and of an earlier job of the same name."""
        return pod_logs.pods(self._client, self._namespace, self._selector)

    def _follow(self, since: datetime.datetime) -> JobState:
        self._watch = PodWatch(self._client, self._namespace, self._selector).start()
        try:
            return self._follow_to_end(since)
        finally:
            self._watch.close()
            self._reporter.observe([*self._watched(since), *self._pods])

    def _follow_to_end(self, since: datetime.datetime) -> JobState:
        ended = JobState("running")

        def present() -> tuple[list[Pod], bool]:
            nonlocal ended
            self._check_lease()
            job = self._ask(lambda: self._objects.get(self._job))
            if job is None or job["metadata"]["uid"] != self._uid:
                raise UserError(f"{self.name}: someone else deleted this job", record=self.name)
            ended = self._kind.state(job)
            if self._kind.is_suspended(job):
                self._reporter.report(self.name, "is suspended until Kueue admits it")
            self._pods = [pod for pod in self._ask(self._all_pods) if pod.created >= since]
            if ended.state == "running":
                try:
                    self._check(since)
                except UserError as error:  # the pods' logs are still to be read
                    ended = self._given_up = JobState("failed", str(error))
                    self.delete()
            return self._pods, ended.state == "running"

        for pod, line in pod_logs.merged(
            self._client,
            self._namespace,
            present,
            container=self._kind.container,
            on_refused=functools.partial(self._report_refused, "logs"),
            every=POLL_SECONDS,
            sleep=self._sleep,
        ):
            self._reporter.log_line(pod, line)
        return ended

    def _check(self, since: datetime.datetime) -> None:
        self._reporter.check(self._pods, self._watched(since))
        begun = [pod for pod in self._pods if pod.phase not in ("Pending", "Failed")]
        if len(begun) < self._count and time.monotonic() - self._events_read > EVENTS_SECONDS:
            self._events_read = time.monotonic()
            has_all_pods = len(self._pods) >= self._count
            try:
                for about, message in self._objects.warnings(self._job["metadata"]["name"], since):
                    self._reporter.report_event(about, message, has_all_pods)
            except (Refused, Unreachable) as error:  # events are for people
                self._report_refused("events", error)
        self._lost |= {pod.uid for pod in self._pods if not pod.disrupted}
        lost = len(self._lost) - self._count
        if self._max_lost_pods is not None and lost > self._max_lost_pods:
            raise UserError(
                f"{lost} processes were lost, more than parallel.max_restarts allows",
                setting="parallel.max_restarts",
            )

    def _watched(self, since: datetime.datetime) -> list[Pod]:
        return [pod for pod in self._watch.seen() if pod.created >= since]

    def _report_refused(self, request: str, error: Refused | Unreachable) -> None:
        key = (request, error.status if isinstance(error, Refused) else 0)
        if key not in self._refused:
            self._refused.add(key)
            self._write_log(f"{self.name}: {error} The training continues.")

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        return patiently(question, self._sleep, lambda: time.monotonic())
