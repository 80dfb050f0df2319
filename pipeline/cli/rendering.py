"""What ``stagecraft render`` does."""

from __future__ import annotations

import dataclasses
from typing import Any

import yaml

from stagecraft.components.kubernetes.job_folder import exchange
from stagecraft.components.kubernetes.jobs.registry import CLUSTER_JOBS
from stagecraft.components.kubernetes.jobs.request import JobRequest
from stagecraft.pipeline.cli import console
from stagecraft.pipeline.kubeflow import visible_secrets
from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load
from stagecraft.pipeline.vertex.worker_pools import worker_pool_specs
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel import roles

WORKER = "stagecraft.components.kubernetes.worker"
"""The module that each pod runs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft render``, as given."""

    config: str
    overrides: tuple[str, ...]
    launcher: str | None
    name: str | None
    namespace: str
    image: str | None
    machines: tuple[str, ...] = ()


def show(request: Request) -> int:
    """Prints the objects; the command's exit code."""
    try:
        settings = load(request.config, request.overrides)
        objects = _objects(settings, request)
    except (SettingsError, UserError) as error:
        console.error(str(error))
        return 1
    if told := visible_secrets.warning(settings, "the manifest"):
        console.warning(told)
    console.document(yaml.safe_dump_all(objects, sort_keys=False).rstrip())
    return 0


def _objects(settings: PipelineSettings, request: Request) -> list[dict[str, Any]]:
    if request.launcher == "vertex":
        machines = _machines(request.machines)
        return [{"worker_pool_specs": worker_pool_specs(settings, machines, request.image)}]
    if request.machines:
        raise UserError(
            f"--machine-type {request.machines[0]}: goes with --launcher vertex; a Kubernetes job "
            "has kubeflow.steps.Trainer.cpu, memory, gpus and node_selector."
        )
    wanted = job_request(settings, request)
    rendered: list[dict[str, Any]] = CLUSTER_JOBS.get(wanted.job.kind).render(wanted)
    return rendered


def _machines(given: tuple[str, ...]) -> dict[str, str]:
    """By kind of process; without one, under the empty name."""
    pairs = (each.rpartition("=") for each in given)
    return {kind: machine for kind, _, machine in pairs}


def job_request(settings: PipelineSettings, request: Request) -> JobRequest:
    """What the settings ask a cluster for.

    Raises:
        UserError: the pods would not find what to train, or Kubernetes would refuse a name.
    """
    name, kubeflow = request.name or settings.name, settings.kubeflow
    folder = kubeflow.job.folder.rstrip("/")
    exchange.check(folder, kubeflow.step("Trainer").volumes, "kubeflow.job.folder")
    return requested(
        settings,
        name=name,
        namespace=request.namespace,
        folder=f"{folder}/{name}",
        image=request.image,
        kind=request.launcher,
    )


def requested(
    settings: PipelineSettings,
    *,
    name: str,
    namespace: str,
    folder: str,
    image: str | None = None,
    kind: str | None = None,
) -> JobRequest:
    """A training on a cluster.

    Args:
        settings: the topology, and what its pods get.
        name: of the job.
        namespace: of the job.
        folder: that the processes look into.
        image: of all pods; default: the Trainer's, or ``kubeflow.image``.
        kind: of job; default: ``kubeflow.job.kind``.

    Raises:
        UserError: Kubernetes would refuse a name.
    """
    kubeflow, parallel = settings.kubeflow, settings.parallel
    pod = kubeflow.step("Trainer")
    if image:
        pod = pod.model_copy(update={"image": image})
    return JobRequest(
        name=name,
        namespace=namespace,
        image=kubeflow.image,
        command=("python", "-m", WORKER, folder),
        processes=roles.jobs(parallel) or {"worker": 1},
        serves=frozenset(role.job for role in roles.roles(parallel) if role.serves),
        max_restarts=parallel.max_restarts,
        pod=pod,
        job=kubeflow.job.model_copy(update={"kind": kind or kubeflow.job.kind}),
    )
