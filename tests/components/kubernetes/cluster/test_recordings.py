"""The launcher follows jobs that real controllers ran, as they were recorded.

The clock is that of the recording (``recordings.py``): what happened between two questions of the
launcher is applied at once.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import golden
import pytest
from kube_api import KubeApi
from kube_api.errors import ApiError
from kube_api.kubelet import PODS
from kube_api.store import Resource
from recordings import FOLDER, NAMES

from stagecraft.components.kubernetes.api import connection, pod_logs
from stagecraft.components.kubernetes.api.pod_status import PodWatch, pod_of
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS
from stagecraft.components.kubernetes.launch import training_job
from stagecraft.components.kubernetes.launch.training_job import JobFailedError, TrainingJob

Json = dict[str, Any]

EVENTS = Resource("", "v1", "events", "Event")
EMPTY = {f"{kind}-{name}" for kind in ("job", "trainjob") for name in ("norights", "nons")} | {
    "trainjob-noruntime"
}
"""Jobs that the API server refused."""

STOPPED = {"gpu", "mem", "noclaim", "nosecret", "priority", "pull", "sa", "selector"}
"""Scenarios that a person ended, by deleting a job that did not begin. Here nobody does."""

SIXTEEN = [f"worker {index}" for index in range(16)]

LONG_SECONDS = 400.0
"""So long nothing more happens after a recording's end: longer than the launcher's patience."""


class NothingMoreHappens(Exception):
    """The launcher would follow the job for ever."""


class Replay:
    """A recording, applied to a server while the launcher sleeps."""

    def __init__(self, server: KubeApi, name: str) -> None:
        self.server, self.now = server, 0.0
        # Later than the creation of the launcher's job.
        minute = datetime.timedelta(seconds=60)
        self.start = datetime.datetime.now(datetime.timezone.utc) + minute
        recording = json.loads((FOLDER / "recordings" / f"{name}.json").read_text())
        self.job: str = recording["prefix"]
        self.kind = CLUSTER_JOBS.get(name.partition("-")[0])
        self.rows: list[Json] = [row for row in recording["rows"] if row["object"]]
        self.begun = self._begun()
        self.resource = Resource("batch", "v1", "jobs", "Job")
        if self.kind.needs_operator:
            version = f"{self.kind.group}/{self.kind.version}"
            self.resource = server.install(version, self.kind.plural, self.kind.kind)
        self.specs: dict[str, Json] = {}  # of pods by uid; a row has one where it changed
        self.watch: PodWatch | None = None
        self.printed: list[str] = []
        if name.partition("-")[2] in STOPPED:
            deleted = [place for place, row in enumerate(self.rows) if self._deletes(row)]
            del self.rows[min(deleted, default=len(self.rows)) :]
        self.last = self.rows[-1]["t"]

    def _begun(self) -> datetime.datetime:
        times = [row["object"]["metadata"] for row in self.rows if "metadata" in row["object"]]
        return min(connection.parse_time(each["creationTimestamp"]) for each in times)

    def _deletes(self, row: Json) -> bool:
        return row["watch"] == "DELETED" and row["object"]["metadata"]["name"] == self.job

    def manifest(self) -> Json:
        return {
            "apiVersion": f"{self.kind.group}/{self.kind.version}",
            "kind": self.kind.kind,
            "metadata": {"name": self.job, "namespace": self.server.namespace},
        }

    def roles(self) -> list[str]:
        """The names of the processes, as far as pods were there; otherwise of two workers."""
        found = {
            self.kind.role(metadata["labels"], metadata["annotations"], SIXTEEN): None
            for row in self.rows
            if row["kind"] == "Pod"
            for metadata in [row["object"]["metadata"]]
        }
        known = sorted(filter(None, found))
        if self.kind.name == "tfjob":
            return known or SIXTEEN[:2]
        return SIXTEEN[: max([2, *(1 + SIXTEEN.index(role) for role in known)])]

    def begin(self) -> None:
        """What was there when the recording began."""
        listed = [row for row in self.rows if row["watch"] == "LISTED"]
        self.rows = [row for row in self.rows if row["watch"] != "LISTED"]
        for row in listed:
            if row["kind"] == self.kind.kind and row["object"]["metadata"]["name"] == self.job:
                self.server.store.create(self.resource, self.server.namespace, self.manifest())
            self._apply(row)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Until the time, and at once until something happens."""
        if self.now > self.last + LONG_SECONDS:
            raise NothingMoreHappens
        following = self.rows[0]["t"] if self.rows else self.now + LONG_SECONDS / 4
        self.now = max(self.now, following) + seconds
        while self.rows and self.rows[0]["t"] <= self.now:
            self._apply(self.rows.pop(0))

    def _apply(self, row: Json) -> None:
        if row["kind"] == "Pod":
            self._apply_pod(row)
        elif row["kind"] == "Event":
            self._apply_event(row["object"])
        elif row["kind"] == self.kind.kind and row["object"]["metadata"]["name"] == self.job:
            self._apply_job(row)

    def _apply_job(self, row: Json) -> None:
        store, namespace = self.server.store, self.server.namespace
        try:
            if row["watch"] == "DELETED":
                store.delete(self.resource, namespace, self.job)
            else:
                keys = {"spec", "status"} & row["object"].keys()
                body = {key: row["object"][key] or {} for key in keys}
                store.patch(self.resource, namespace, self.job, body)
        except ApiError:  # the launcher has deleted it, or has not made it
            pass

    def _apply_pod(self, row: Json) -> None:
        store, namespace = self.server.store, self.server.namespace
        metadata = row["object"]["metadata"] | {"namespace": namespace}
        spec = row["object"].get("spec") or self.specs.get(metadata["uid"], {"containers": []})
        pod = row["object"] | {"spec": self.specs.setdefault(metadata["uid"], spec)}
        metadata.pop("finalizers", None)
        own = [owner | {"uid": "replayed"} for owner in metadata.get("ownerReferences", ())]
        pod["metadata"] = metadata | {"ownerReferences": own}
        for key in ("creationTimestamp", "deletionTimestamp"):
            if key in metadata:
                pod["metadata"][key] = self._time(metadata[key])
        store.put(PODS, namespace, pod, gone=row["watch"] == "DELETED")
        if self.watch is not None:
            self.watch.observe(pod_of(pod))

    def _apply_event(self, event: Json) -> None:
        kind, _, name = event["about"].partition(" ")
        body = event | {
            "metadata": {"generateName": "event-"},
            "involvedObject": {"kind": kind, "name": name},
        }
        for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
            body[key] = self._time(event[key]) if event.get(key) else None
        self.server.store.create(EVENTS, self.server.namespace, body)

    def _time(self, recorded: str) -> str:
        """A time of the recording, as if it had begun when the test did."""
        passed = connection.parse_time(recorded) - self.begun
        return (self.start + passed).strftime("%Y-%m-%dT%H:%M:%SZ")

    def training(self, **more: Any) -> TrainingJob:
        return TrainingJob(
            connection.connect(),
            self.server.namespace,
            self.kind,
            [self.manifest()],
            self.roles(),
            write_log=self.printed.append,
            sleep=self.sleep,
            **more,
        )


@pytest.fixture
def replay(
    server: KubeApi, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Replay:
    made = Replay(server, request.param)

    class Watch(PodWatch):
        def start(self) -> PodWatch:
            made.watch = self
            return self

    monkeypatch.setattr(training_job, "time", made)
    monkeypatch.setattr(training_job, "PodWatch", Watch)
    monkeypatch.setattr(training_job, "POLL_SECONDS", 2.0)
    monkeypatch.setattr(pod_logs, "followed", lambda *args, **kwargs: iter(()))  # none recorded
    return made


@pytest.mark.skipif(not NAMES, reason="no recordings: set STAGECRAFT_KUBEFLOW to their folder")
@pytest.mark.parametrize("replay", sorted({*NAMES} - EMPTY), indirect=True)
def test_what_the_launcher_does(replay: Replay, request: pytest.FixtureRequest) -> None:
    replay.begin()
    training = replay.training(
        max_lost_pods=6 if replay.kind.name == "tfjob" else None,
        max_restarts=3 if replay.kind.name == "tfjob" else 0,
    )
    try:
        training.run()
        end = "done"
    except JobFailedError as error:
        end = f"failed: {error}"
    except NothingMoreHappens:
        end = "the launcher follows the job"
    except Exception as error:
        end = f"{type(error).__name__}: {error}"
    found = re.sub(r"\b[0-9a-f]{16,64}\b", "HEX", "\n".join([*replay.printed, end]))
    golden.check(f"launcher/{request.node.callspec.params['replay']}.txt", found + "\n")


@pytest.mark.skipif(not NAMES, reason="no recordings: set STAGECRAFT_KUBEFLOW to their folder")
def test_each_golden_file_has_a_recording() -> None:
    assert {path.stem for path in (golden.FOLDER / "launcher").iterdir()} == {*NAMES} - EMPTY
