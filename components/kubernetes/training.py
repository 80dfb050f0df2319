"""A training as a job of the cluster: starts or finds it, follows it, and leaves none behind."""

from __future__ import annotations

import collections
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stagecraft.components.kubernetes import pod_logs
from stagecraft.components.kubernetes.conditions import Verdict, verdict
from stagecraft.components.kubernetes.connection import Refused
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL
from stagecraft.components.kubernetes.objects import Json, Objects
from stagecraft.components.kubernetes.pod_logs import Pod
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import exit_codes

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 300.0
"""How long the cluster's API may fail or not answer."""

STUCK_SECONDS = 300.0
"""How long a container may wait for an image, a secret or a volume that are not there."""

POLL_SECONDS = 2.0

_LAST_LINES = 20

_INDEX = "batch.kubernetes.io/job-completion-index"
_OPERATOR = ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index")

_OTHERS = (exit_codes.LOST_PEER, exit_codes.PREEMPTED)
"""Exit codes of processes that something else has ended."""


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
        write_log: Callable[[str], Any] = lambda line: print(line, file=sys.stderr, flush=True),
        sleep: Callable[[float], Any] = time.sleep,
    ):
        """Nothing is created yet.

        Args:
            client: connection to the cluster.
            namespace: of the job.
            objects: as rendered.
            roles: names of the processes, such as ``worker 1``, by their index in the job.
            container: of each pod, that trains.
            write_log: takes what the pods print, a line at a time, the role in front.
            sleep: waits for seconds.
        """
        self._client, self._namespace = client, namespace
        self._objects = Objects(client, namespace)
        *self._helpers, self._job = objects
        self._roles, self._container = roles, container
        self._write_log = write_log
        self._sleep = sleep
        self._last: dict[str, collections.deque[str]] = {}
        self._told: set[tuple[str, str]] = set()
        self._stuck_since: dict[str, float] = {}
        self._pods: list[Pod] = []

    @property
    def name(self) -> str:
        """Of the job, for people."""
        return f"{self._job['kind']} {self._job['metadata']['name']}"

    def run(self) -> None:
        """Returns when the training is done; asks for the job's end if anything else happens.

        Raises:
            UserError: it failed: why, and what the failing pod printed last.
        """
        ended = Verdict("running")
        try:
            self._start()
            ended = self._follow()
        finally:
            if ended.state == "running":  # one that is over stays for its logs, see ttl_seconds
                self.delete()
        if ended.state == "failed":
            raise UserError(f"{self.name} failed: {ended.message}{self._last_words()}")

    def delete(self) -> None:
        """Asks for the job's end, once, and waits for nothing: there may be no time."""
        try:
            self._objects.delete(self._job)
        except UserError as error:
            _log.error("%s; its pods end when their lease is over", error)

    def _start(self) -> None:
        """Creates the job, or takes over the one that an attempt before has left."""
        while True:
            found = self._ask(self._create_or_get)
            metadata = found["metadata"]
            state = verdict(found).state
            if "deletionTimestamp" not in metadata and state != "failed":
                break
            _log.info("%s: one that is over is deleted first", self.name)
            self._ask(lambda: self._objects.delete(self._job))
            self._sleep(POLL_SECONDS)
        owner = {
            "apiVersion": self._job["apiVersion"],
            "kind": self._job["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        for helper in self._helpers:  # they go with the job
            owned = helper | {"metadata": helper["metadata"] | {"ownerReferences": [owner]}}
            self._ask(lambda owned=owned: self._create(owned))  # type: ignore[misc]

    def _create_or_get(self) -> Json:
        created = self._create(self._job)
        if created is not None:
            _log.info("%s: created in namespace %s", self.name, self._namespace)
            return created
        found = self._objects.get(self._job)
        if found is None:  # gone between the two
            return self._create_or_get()
        if verdict(found).state != "failed" and "deletionTimestamp" not in found["metadata"]:
            owners = self._job["metadata"].get("ownerReferences", [])
            _log.info("%s: is there already, from an attempt before; goes on with it", self.name)
            return self._objects.patch(self._job, {"metadata": {"ownerReferences": owners}})
        return found

    def _create(self, body: Json) -> Json | None:
        """None if it is there already."""
        try:
            return self._objects.create(body)
        except Refused as error:
            if error.status != 409:
                raise
            return None

    def _follow(self) -> Verdict:
        ended = Verdict("running")

        def present() -> tuple[list[Pod], bool]:
            nonlocal ended
            found = self._ask(lambda: self._objects.get(self._job))
            if found is None:
                raise UserError(f"{self.name}: was deleted by somebody else")
            ended = verdict(found)
            selector = f"{JOB_LABEL}={self._job['metadata']['name']}"
            self._pods = self._ask(lambda: pod_logs.pods(self._client, self._namespace, selector))
            self._note_waiting()
            return self._pods, ended.state == "running"

        for pod, line in pod_logs.merged(
            self._client,
            self._namespace,
            present,
            container=self._container,
            on_refused=lambda error: self._tell("logs", str(error)),
            every=POLL_SECONDS,
            sleep=self._sleep,
        ):
            lines = self._last.setdefault(pod.name, collections.deque(maxlen=_LAST_LINES))
            lines.append(line)
            self._write_log(f"{self.role(pod)}: {line}")
        return ended

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """What the cluster answers, asked again while its API fails or cannot be reached."""
        begun, pause = time.monotonic(), 1.0
        while True:
            try:
                return question()
            except UserError as error:
                status = error.status if isinstance(error, Refused) else None
                passing = status is None or status == 429 or status >= 500
                if not passing or time.monotonic() - begun > PATIENCE_SECONDS:
                    raise
                _log.warning("%s Trying again.", error)
            self._sleep(pause)
            pause = min(2 * pause, 15.0)

    def role(self, pod: Pod) -> str:
        """Which process a pod is, as ``worker 1``; else the pod's name."""
        kind, index = (pod.labels.get(label) for label in _OPERATOR)
        if kind and index:
            return f"{kind.lower()} {index}"
        place = pod.annotations.get(_INDEX) or pod.labels.get(_INDEX)
        if place is not None and int(place) < len(self._roles):
            return self._roles[int(place)]
        return pod.name

    def _note_waiting(self) -> None:
        """Tells why containers do not begin.

        Raises:
            UserError: one has waited for too long for something that will not come.
        """
        now = time.monotonic()
        for pod in self._pods:
            if not pod.waiting:
                self._stuck_since.pop(pod.name, None)
                continue
            self._tell(self.role(pod), pod.waiting)
            since = self._stuck_since.setdefault(pod.name, now)
            if now - since > STUCK_SECONDS:
                raise UserError(
                    f"{self.name}: {self.role(pod)} (pod {pod.name}) does not begin: {pod.waiting}"
                )

    def _tell(self, who: str, what: str) -> None:
        if (who, what) not in self._told:
            self._told.add((who, what))
            self._write_log(f"{who}: {what}")

    def _last_words(self) -> str:
        """Of the pod whose own fault it seems to be."""
        failed = [pod for pod in self._pods if pod.phase == "Failed"]
        failed.sort(key=lambda pod: pod.exit_code in _OTHERS)
        if not failed:
            return ""
        pod = failed[0]
        ended = f"exit code {pod.exit_code}" if pod.exit_code is not None else pod.phase
        words = f"\n{self.role(pod)} (pod {pod.name}): {pod.reason or ended}"
        return words + "".join(f"\n  {line}" for line in self._last.get(pod.name, ()))
