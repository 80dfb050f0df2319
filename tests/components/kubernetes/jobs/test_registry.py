"""Kinds of cluster jobs: built-in ones, and one that another package adds."""

import importlib.metadata
from collections.abc import Iterator

import pytest
from job_requests import KINDS, job_request

from stagecraft.common.errors import SettingError
from stagecraft.common.registry import UnknownNameError
from stagecraft.components.kubernetes import preflight
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, RequiredObject
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS, JobSettings
from stagecraft.components.kubernetes.launch.training_job import TrainingJob


class MPIJob(ClusterJob):
    """What a package outside of this one has."""

    name = "mpijob"
    description = "an MPIJob"
    group, version, kind = "kubeflow.org", "v2beta1", "MPIJob"
    controller = "the MPI operator 0.6"
    container = "mpi"
    succeeded = "Succeeded"
    quota = ("count/mpijobs.kubeflow.org",)

    def render(self, request: JobRequest) -> list[Json]:
        """Has a field for the name alone."""
        if request.pod.gpus:
            raise SettingError("kubeflow.steps.Trainer.gpus", request.pod.gpus, "has no field")
        version = f"{self.group}/{self.version}"
        return [{"apiVersion": version, "kind": self.kind, "metadata": request.metadata()}]

    def required_objects(self, namespace: str) -> list[RequiredObject]:
        """A service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/mpi"
        return [RequiredObject("mpi", path, "ServiceAccount mpi", "apply mpi.yaml")]


MPI_JOB = MPIJob()


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The entry point of another package."""
    point = importlib.metadata.EntryPoint("mpijob", f"{__name__}:MPI_JOB", CLUSTER_JOBS.group)
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: MPI_JOB)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (point,))
    CLUSTER_JOBS.refresh()
    yield
    CLUSTER_JOBS.refresh()


def test_each_built_in_kind_has_its_file():
    assert [entry.name for entry in CLUSTER_JOBS.built_in()] == list(KINDS)
    assert all(entry.description and entry.controller for entry in CLUSTER_JOBS.built_in())


def test_an_unknown_kind():
    with pytest.raises(UnknownNameError) as caught:
        CLUSTER_JOBS.get("trainjobs")
    assert caught.value.suggestion == "trainjob"


def test_a_kind_of_another_package(added, server, client):
    """Settings, preflight and launcher take it; nothing else is to be changed."""
    request = job_request("mpijob")
    assert request.job == JobSettings(kind="mpijob") and "mpijob" in CLUSTER_JOBS.names()
    planned = preflight.PlannedTraining(
        request=request, folder="s3://b/jobs", checkpoints="s3://b/checkpoints", default_image="x"
    )
    server.add("namespaces", "kubeflow")

    def failed() -> set[str]:
        results = preflight.check_cluster(client, planned)
        return {result.name for result in results if result.verdict == "missing"}

    assert failed() == {"kind", "mpi"}
    resource = server.install("kubeflow.org/v2beta1", "mpijobs", "MPIJob")
    server.add("serviceaccounts", "mpi")
    assert failed() == set()

    def succeed(seconds: float) -> None:
        job = server.store.get(resource, request.namespace, request.name)
        job["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        server.store.replace(resource, request.namespace, request.name, job)

    objects = MPI_JOB.render(request)
    job = TrainingJob(client, request.namespace, MPI_JOB, objects, ["worker 0"], sleep=succeed)
    job.run()
    assert job.is_over
