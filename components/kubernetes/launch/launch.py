"""Starts a training's processes as a job of the cluster, from the Trainer's step on Kubeflow."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from typing import Any

from pydantic import ValidationError

from stagecraft.components.kubernetes import worker
from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.job_folder import shared_folder, staging
from stagecraft.components.kubernetes.job_folder.handover import TASK, Handover, take
from stagecraft.components.kubernetes.jobs import kinds
from stagecraft.components.kubernetes.jobs.job_settings import CLUSTER, ClusterSettings
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json
from stagecraft.components.kubernetes.launch import leases
from stagecraft.components.kubernetes.launch.training import Training
from stagecraft.components.object_store.folder import is_address
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel import roles
from stagecraft.trainer_module.processes import preemption
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.worker import task_of

_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""

_OWN_NAMESPACE, _POD, _POD_UID = "STAGECRAFT_NAMESPACE", "KFP_POD_NAME", "KFP_POD_UID"
"""Environment variables. The backend sets the last two (argocompiler/common.go)."""


def settings() -> ClusterSettings:
    """What the step was given.

    Raises:
        UserError: this is no step that was compiled with ``parallel.launcher: kubernetes``.
    """
    try:
        return ClusterSettings.model_validate_json(os.environ.get(CLUSTER, ""))
    except ValidationError as error:
        raise UserError(
            f"parallel.launcher: kubernetes: environment variable {CLUSTER}: "
            f"{error.errors()[0]['msg']}. It is set in steps that were compiled for Kubeflow with "
            "this launcher; on one machine, use parallel.launcher: auto."
        ) from None


def run(path: str, fn_args: Any, parallel: ParallelSettings, handover: Handover) -> None:
    """Trains in a job, to its end.

    Args:
        path: dotted path of ``run_fn``.
        fn_args: as TFX gives them, with paths in the handover's place.
        parallel: the topology.
        handover: with the job's pods.

    Raises:
        UserError: it failed, or may not be started.
    """
    cluster, folder, namespace = settings(), handover["folder"], _namespace()
    wanted = request(cluster, parallel, folder, namespace)
    client = connection.connect()
    _check_version(client, wanted)
    shared = shared_folder.at(folder)
    checkpoints_held = leases.of(
        client,
        namespace,
        fn_args.working_dir,
        name=wanted.name,
        seconds=cluster.job.lease_seconds,
    )
    training = Training(
        client,
        namespace,
        kinds.render(wanted),
        [role.name for role in roles.roles(parallel, [""] * wanted.count)],
        container=kinds.CONTAINERS[cluster.job.kind],
        # Without a task, this is no further attempt: a job's results went when its model was taken.
        adopts=shared.read(TASK) is not None,
        # See jobs.tfjob.
        restarts=wanted.max_restarts * wanted.count if cluster.job.kind == "tfjob" else None,
        write_log=_print,
        check=functools.partial(leases.check, checkpoints_held),
    )
    preemption.on_sigterm(training.delete)
    task = task_of(path, fn_args)
    if is_address(folder):
        task = staging.portable(task, handover["place"])
    with leases.held(checkpoints_held, lambda: training.is_over):
        shared.write(TASK, task.encode())
        training.run()
        take(handover)


def request(
    cluster: ClusterSettings, parallel: ParallelSettings, folder: str, namespace: str
) -> JobRequest:
    """What is asked of the cluster for a topology."""
    served = parallel.strategy == "parameter_server"
    return JobRequest(
        name=folder.rpartition("/")[2],
        namespace=namespace,
        image=cluster.image,
        command=("python", "-m", worker.__name__, folder),
        processes=roles.jobs(parallel) or {"worker": 1},
        serves=frozenset({"worker", "ps"}) if served else frozenset(),
        max_restarts=parallel.max_restarts,
        pod=cluster.pod,
        job=cluster.job,
        owner=_owner(namespace),
    )


def _check_version(client: Any, wanted: JobRequest) -> None:
    if not (what := kinds.needs_success_policy(wanted)):
        return
    found = connection.patiently(lambda: connection.version(client))
    if found < kinds.SUCCESS_POLICY:
        needed, there = (".".join(map(str, each)) for each in (kinds.SUCCESS_POLICY, found))
        other = "tfjob" if wanted.serves else "job"
        raise UserError(
            f"kubeflow.job.kind: {wanted.job.kind}: {what} needs Kubernetes {needed} "
            f"(successPolicy), and this is {there}; use kubeflow.job.kind: {other}"
        )


def _namespace() -> str:
    found = os.environ.get(_OWN_NAMESPACE) or _own_namespace()
    if not found:
        raise UserError(
            f"parallel.launcher: kubernetes: this is no pod with a service account; set "
            f"{_OWN_NAMESPACE} to the namespace that the job is to be in."
        )
    return found


def _own_namespace() -> str:
    """This pod's; empty where this is none."""
    try:
        return _NAMESPACE.read_text().strip()
    except OSError:
        return ""


def _owner(namespace: str) -> Json | None:
    """This pod: what it has started goes with it, once somebody deletes it.

    Of another namespace there is none: Kubernetes would look for this pod there, and delete the
    job, as one whose owner is gone.
    """
    name, uid = os.environ.get(_POD), os.environ.get(_POD_UID)
    if not name or not uid or _own_namespace() not in ("", namespace):
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
