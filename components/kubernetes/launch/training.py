"""A training as a job of the cluster: starts or finds it, follows it, and leaves none behind."""

from __future__ import annotations

import datetime
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stagecraft.components.kubernetes.api import objects as cluster
from stagecraft.components.kubernetes.api import pod_logs
from stagecraft.components.kubernetes.api.conditions import Verdict, verdict
from stagecraft.components.kubernetes.api.connection import Refused, Unreachable, patiently
from stagecraft.components.kubernetes.api.objects import Json, Objects
from stagecraft.components.kubernetes.api.pod_status import Pod
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL
from stagecraft.components.kubernetes.launch.notices import STUCK_SECONDS, Notices
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing.lease_record import LeaseLostError

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

POLL_SECONDS = 2.0

EVENTS_SECONDS = 15.0
"""Between looks for what the cluster says, while processes are missing."""


class Training:
    """The objects of one training, of which the last one is the job."""

    def __init__(
        self,
        client: Any,
        namespace: str,
        objects: Sequence[Json],
        roles: Sequence[str],
        *,
        container: str,
        adopts: bool = True,
        restarts: int | None = None,
        write_log: Callable[[str], Any] = lambda line: print(line, file=sys.stderr, flush=True),
        sleep: Callable[[float], Any] = time.sleep,
        check: Callable[[], Any] = lambda: None,
    ):
        """Nothing is created yet.

        Args:
            client: connection to the cluster.
            namespace: of the job.
            objects: as rendered.
            roles: names of the processes, such as ``worker 1``, by their index in the job.
            container: of each pod, that trains.
            adopts: whether a job that is there is gone on with; else it is replaced.
            restarts: how many pods may be lost in all; None: the job's controller counts.
            write_log: takes what the pods print, a line at a time, the role in front.
            sleep: waits for seconds.
            check: raises LeaseLostError if another training has the checkpoints by now.
        """
        self._client, self._namespace = client, namespace
        self._objects = Objects(client, namespace)
        *self._helpers, self._job = objects
        self._count, self._container = len(roles), container
        self._adopts, self._restarts = adopts, restarts
        self._write_log, self._sleep, self._check_lease = write_log, sleep, check
        self._notices = Notices(roles, write_log, lambda: time.monotonic())
        self._uid: str | None = None
        self.is_over = False
        """Whether its pods have ended, or are about to."""

        self._ended = threading.Lock()
        self._pods: list[Pod] = []
        self._lost: set[str] = set()
        self._refused: set[tuple[str, int]] = set()
        self._looked = time.monotonic()

    @property
    def name(self) -> str:
        """Of the job, for people."""
        return f"{self._job['kind']} {self._job['metadata']['name']}"

    def run(self) -> None:
        """Returns when the training is done; asks for the job's end if anything else happens.

        Raises:
            LeaseLostError: another training has the checkpoints.
            UserError: it failed: why, and what the failing pod printed last.
        """
        ended = Verdict("running")
        try:
            ended = self._follow(self._start())
        except LeaseLostError as error:
            if error.holder is not None and error.holder.name == self._job["metadata"]["name"]:
                self._ended.acquire(blocking=False)  # another attempt goes on with the job
            raise
        finally:
            if ended.state == "running":
                self.delete()
            else:
                self.is_over = True
            self._ended.acquire(blocking=False)  # one that is over stays for its logs: ttl_seconds
        if ended.state == "failed":
            words = self._notices.last_words(self._pods)
            raise UserError(f"{self.name} failed: {ended.message}{words}")

    def delete(self) -> None:
        """Asks for the job's end, once, and waits for nothing: there may be no time.

        Any thread may call it; when the job is over, nothing happens.
        """
        if not self._ended.acquire(blocking=False):
            return
        try:
            self._objects.delete(self._job, self._uid)
            self.is_over = True
        except UserError as error:
            _log.error("%s; its pods end when their lease is over", error)

    def _start(self) -> datetime.datetime:
        """Creates the job, or goes on with the one that an attempt before has left.

        Returns:
            When it was created.
        """
        begun = time.monotonic()
        while (found := self._created_or_found(time.monotonic() - begun)) is None:
            self._check_lease()
            self._sleep(POLL_SECONDS)
        self._uid = found["metadata"]["uid"]
        owner = {
            "apiVersion": self._job["apiVersion"],
            "kind": self._job["kind"],
            "name": found["metadata"]["name"],
            "uid": self._uid,
        }
        for helper in self._helpers:  # they go with the job
            owned = helper | {"metadata": helper["metadata"] | {"ownerReferences": [owner]}}
            while not self._is_there(owned):
                self._sleep(POLL_SECONDS)
        return cluster.created(found)

    def _created_or_found(self, waited: float) -> Json | None:
        """None: not yet."""
        found = self._ask(lambda: self._objects.get(self._job))
        if found is None:
            # Two trainings would be at the same checkpoints. A lost node's pod never ends.
            left = [pod for pod in self._ask(self._all_pods) if not pod.is_over]
            if left and waited < STUCK_SECONDS:
                self._notices.tell(self.name, f"waits for pods of one before: {len(left)}")
                return None
            created = self._ask(lambda: self._create(self._job))
            if created is not None:
                _log.info("%s: created in namespace %s", self.name, self._namespace)
            return created
        metadata = found["metadata"]
        if "deletionTimestamp" in metadata:
            if waited > STUCK_SECONDS:
                raise UserError(
                    f"{self.name}: one of that name is being deleted, and is still there after "
                    f"{waited:.0f} s; see its finalizers: {metadata.get('finalizers', [])}"
                )
            self._notices.tell(self.name, "waits for one of that name to be deleted")
            return None
        if verdict(found).state == "failed" or not self._adopts:
            _log.info("%s: one of an attempt before is deleted first", self.name)
            self._ask(lambda: self._objects.delete(self._job, metadata["uid"]))
            self._adopts = True
            return None
        _log.info("%s: is there already; goes on with it", self.name)
        owners = self._job["metadata"].get("ownerReferences", [])
        if metadata.get("ownerReferences", []) == owners:
            return found
        change = {"metadata": {"ownerReferences": owners}}
        return self._ask(lambda: self._objects.patch(self._job, change))

    def _is_there(self, helper: Json) -> bool:
        """Whether this job's helper is there; one of a job before will go with that."""
        if self._ask(lambda: self._create(helper)) is not None:
            return True
        found = self._ask(lambda: self._objects.get(helper))
        if found is None:
            return False
        metadata = found["metadata"]
        if any(owner["uid"] == self._uid for owner in metadata.get("ownerReferences", ())):
            return True
        self._ask(lambda: self._objects.delete(helper, metadata["uid"]))
        return False

    def _create(self, body: Json) -> Json | None:
        """None if it is there already, or a quota was changed meanwhile."""
        try:
            return self._objects.create(body)
        except Refused as error:
            if error.status != 409:
                raise
            return None

    def _all_pods(self) -> list[Pod]:
        """Also of a job before, of that name."""
        selector = f"{JOB_LABEL}={self._job['metadata']['name']}"
        return pod_logs.pods(self._client, self._namespace, selector)

    def _follow(self, since: datetime.datetime) -> Verdict:
        ended = Verdict("running")

        def present() -> tuple[list[Pod], bool]:
            nonlocal ended
            self._check_lease()
            found = self._ask(lambda: self._objects.get(self._job))
            if found is None or found["metadata"]["uid"] != self._uid:
                raise UserError(f"{self.name}: was deleted by somebody else")
            ended = verdict(found)
            spec = found.get("spec", {})
            if spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"):
                self._notices.tell(self.name, "is suspended: Kueue admits it when there is room")
            self._pods = [pod for pod in self._ask(self._all_pods) if pod.created >= since]
            if ended.state == "running":
                try:
                    self._check(since)
                except UserError as error:  # what the pods have printed is still to be read
                    ended = Verdict("failed", str(error))
                    self.delete()
            return self._pods, ended.state == "running"

        for pod, line in pod_logs.merged(
            self._client,
            self._namespace,
            present,
            container=self._container,
            on_refused=functools.partial(self._tell_refused, "logs"),
            every=POLL_SECONDS,
            sleep=self._sleep,
        ):
            self._notices.printed(pod, line)
        return ended

    def _check(self, since: datetime.datetime) -> None:
        """Tells what is wrong with the pods, and why some are missing.

        Raises:
            UserError: it will not get better.
        """
        self._notices.look(self._pods)
        begun = [pod for pod in self._pods if pod.phase not in ("Pending", "Failed")]
        if len(begun) < self._count and time.monotonic() - self._looked > EVENTS_SECONDS:
            self._looked = time.monotonic()
            try:
                for about, what in self._objects.warnings(self._job["metadata"]["name"], since):
                    self._notices.tell(about, what)
            except (Refused, Unreachable) as error:  # for people alone
                self._tell_refused("events", error)
        self._lost |= {pod.uid for pod in self._pods if not pod.disrupted}
        lost = len(self._lost) - self._count
        if self._restarts is not None and lost > self._restarts:
            raise UserError(f"{lost} processes were lost, and parallel.max_restarts allows no more")

    def _tell_refused(self, what: str, error: Refused | Unreachable) -> None:
        """Once, whichever pod it is about."""
        key = (what, error.status if isinstance(error, Refused) else 0)
        if key not in self._refused:
            self._refused.add(key)
            self._write_log(f"{self.name}: {error} The training goes on.")

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        return patiently(question, self._sleep, lambda: time.monotonic())
