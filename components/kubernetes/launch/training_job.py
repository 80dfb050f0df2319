"""Creates or adopts a training's job on the cluster, follows it, and deletes it if it fails."""

from __future__ import annotations

import datetime
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
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
from stagecraft.components.kubernetes.api.pod_status import Pod, PodWatch
from stagecraft.components.kubernetes.jobs.cluster_job import (
    ClusterJob,
    JobRefusedError,
    JobState,
)
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL
from stagecraft.components.kubernetes.launch.pod_reporter import STUCK_SECONDS, PodReporter
from stagecraft.trainer_module.checkpointing.lease import LeaseLostError

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

POLL_SECONDS = 2.0
EVENTS_SECONDS = 15.0  # between requests for the cluster's events, while processes are missing


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
