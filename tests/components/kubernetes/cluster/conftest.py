"""A Trainer's step that starts a job: real processes under emulated controllers."""

import concurrent.futures
import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from artifacts import OUTPUTS, Artifacts, artifacts, training_inputs, training_properties
from job_controllers import Cluster, controllers
from kube_api import KubeApi
from kube_api.kubelet import PODS
from kube_api.store import Resource
from tfx import types

from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.jobs.settings import (
    CLUSTER,
    CLUSTER_JOBS,
    ClusterSettings,
    JobSettings,
    PodSettings,
    Secret,
    Volume,
)
from stagecraft.components.kubernetes.launch import training_job
from stagecraft.components.trainer.component import RUN_FN
from stagecraft.components.trainer.executor import Executor

JOBS = Resource("batch", "v1", "jobs", "Job")

MODELS = pathlib.Path(__file__).resolve().parents[3] / "trainer_module"

TRAIN = {"model": "user_models:tiny", "batch_size": 8, "eval_batch_size": 5, "steps": 4}


@dataclasses.dataclass
class Step:
    """The Trainer's step: its artifacts and its settings."""

    folder: pathlib.Path
    inputs: Artifacts
    outputs: Artifacts
    checkpoints: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = self.volume / "checkpoints"

    @property
    def volume(self) -> pathlib.Path:
        return self.folder / "volume"

    @property
    def model(self) -> types.Artifact:
        [model] = self.outputs["model"]
        return model

    @property
    def job_folder(self) -> pathlib.Path:
        """Of the only training."""
        [folder] = (self.volume / "jobs").iterdir()
        return folder

    def run(
        self, parallel: dict[str, Any], train: dict[str, Any] | None = None, run_fn: str = RUN_FN
    ) -> None:
        asked = {"train": TRAIN | (train or {}), "parallel": {"launcher": "kubernetes"} | parallel}
        properties = training_properties(asked, self.checkpoints)
        Executor().Do(self.inputs, self.outputs, properties | {"run_fn": run_fn})


@pytest.fixture
def server(server: KubeApi, monkeypatch: pytest.MonkeyPatch) -> KubeApi:
    monkeypatch.setenv("STAGECRAFT_NAMESPACE", server.namespace)
    monkeypatch.setattr(training_job, "POLL_SECONDS", 0.2)
    return server


@pytest.fixture
def cluster(server: KubeApi) -> Iterator[Cluster]:
    with controllers(server) as running:
        yield running


@pytest.fixture
def step(
    training_data: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Step]:
    monkeypatch.setenv("PYTHONPATH", f"{MODELS}{os.pathsep}{pathlib.Path(__file__).parent}")
    monkeypatch.syspath_prepend(str(MODELS))

    def make(kind: str = "job", **job: Any) -> Step:
        volume = tmp_path / "volume"
        volume.mkdir(exist_ok=True)
        cluster = ClusterSettings(
            image="stagecraft:latest",
            job=JobSettings(kind=kind, **({"folder": str(volume / "jobs")} | job)),
            pod=PodSettings(
                volumes=(Volume(claim="training", path=str(volume)),),
                secrets=(Secret(name="secret", key="key", env="SECRET"),),
            ),
        )
        monkeypatch.setenv(CLUSTER, cluster.model_dump_json(exclude_defaults=True))
        inputs = training_inputs(training_data.examples.parent)
        return Step(tmp_path, inputs, artifacts(OUTPUTS, tmp_path))

    return make


@pytest.fixture
def stored(step: Any, bucket: str) -> Any:
    """A step whose folders are in a store."""
    one = step(folder=f"s3://{bucket}/jobs")
    one.checkpoints = f"s3://{bucket}/checkpoints"
    return one


@pytest.fixture
def aside() -> Iterator[Callable[..., concurrent.futures.Future[None]]]:
    """Calls a function in a thread."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool.submit


class Clock:
    """Time that passes when somebody sleeps, and what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.actions: list[tuple[float, Callable[[], Any]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.actions and self.actions[0][0] <= self.now:
            self.actions.pop(0)[1]()
        threading.Event().wait(0.005)  # for threads that read logs

    def at(self, seconds: float, action: Callable[[], Any]) -> None:
        self.actions.append((seconds, action))
        self.actions.sort(key=lambda each: each[0])


class ByHand:
    """A training of two processes, whose controller is the test."""

    name = "train-1"
    kind = CLUSTER_JOBS.get("job")
    resource = JOBS

    def __init__(self, server: KubeApi, clock: Clock) -> None:
        self.server, self.clock = server, clock
        self.printed: list[str] = []
        metadata = {"name": self.name, "namespace": server.namespace}
        self.objects: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata},
        ]

    def training(self, **more: Any) -> training_job.TrainingJob:
        return training_job.TrainingJob(
            connection.connect(),
            self.server.namespace,
            self.kind,
            self.objects,
            ["worker 0", "worker 1"],
            write_log=self.printed.append,
            sleep=self.clock.sleep,
            **more,
        )

    def run(self, end: float) -> None:
        """Follows the training; the job is done then."""
        self.clock.at(end, self.end)
        self.training().run()

    def add_pod(self, name: str, index: int = 0, **more: Any) -> None:
        self.server.add_pod(
            name,
            {"stagecraft.dev/job": self.name},
            ("training",),
            annotations={"batch.kubernetes.io/job-completion-index": str(index)},
            **more,
        )

    def patch_pod(self, name: str, **status: Any) -> None:
        self._patch(PODS, name, status)

    def end(self, condition: str = "Complete", **more: str) -> None:
        for pod in self.server.store.list(PODS, "", lambda manifest: True):
            if pod["status"]["phase"] == "Running":
                self.server.finish(pod["metadata"]["name"])
        self._patch(JOBS, self.name, {"conditions": [{"type": condition, "status": "True"} | more]})

    def jobs(self) -> list[dict[str, Any]]:
        return self.server.store.list(JOBS, "", lambda manifest: True)

    def asked(self, method: str, path: str = "") -> int:
        return sum(
            request.method == method and request.path.endswith(path)
            for request in self.server.requests
        )

    def _patch(self, resource: Resource, name: str, status: Any) -> None:
        self.server.store.patch(resource, self.server.namespace, name, {"status": status})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(training_job, "time", made)
    return made


@pytest.fixture
def by_hand(server: KubeApi, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> ByHand:
    monkeypatch.setattr(training_job, "POLL_SECONDS", 10.0)
    return ByHand(server, clock)
