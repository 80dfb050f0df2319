"""Runs a training as a cluster job, from the Trainer's step on Kubeflow."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from pydantic import ValidationError

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.job_folder.exchange import (
    TASK,
    JobFolder,
    fetch_outputs,
    portable,
)
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, needs_newer_kubernetes
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json
from stagecraft.components.kubernetes.jobs.settings import (
    CLUSTER,
    CLUSTER_JOBS,
    ClusterSettings,
)
from stagecraft.components.kubernetes.launch import leases
from stagecraft.components.kubernetes.launch.training_job import TrainingJob
from stagecraft.components.object_store.folder import is_address, open_folder
from stagecraft.trainer_module.parallel.cluster import roles
from stagecraft.trainer_module.processes import preemption
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import ParallelSettings

_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""

_OWN_NAMESPACE, _POD, _POD_UID = "STAGECRAFT_NAMESPACE", "KFP_POD_NAME", "KFP_POD_UID"
"""Environment variables. The backend sets the last two (argocompiler/common.go)."""


def settings() -> ClusterSettings:
    """Reads the step's environment."""
    try:
        return ClusterSettings.model_validate_json(os.environ.get(CLUSTER, ""))
    except ValidationError as error:
        raise UserError(
            f"parallel.launcher: kubernetes needs the environment variable {CLUSTER} "
            f"({error.errors()[0]['msg']}). The Kubeflow compiler sets this variable in steps with "
            "this launcher. On one machine, use parallel.launcher: auto.",
            setting="parallel.launcher",
            value="kubernetes",
            suggestion="parallel.launcher: auto",
            record=CLUSTER,
        ) from None


def run(task: TrainingTask, parallel: ParallelSettings, job_folder: JobFolder) -> None:
    """Trains in a job, and returns when the job is done.

    Args:
        task: with paths in the job folder's local copy.
    """
    cluster, folder, namespace = settings(), job_folder["folder"], _namespace()
    wanted = JobRequest.of_training(
        parallel,
        cluster,
        name=folder.rpartition("/")[2],
        namespace=namespace,
        folder=folder,
        owner=_owner(namespace),
    )
    kind: ClusterJob = CLUSTER_JOBS.get(cluster.job.kind)
    client = connection.connect()
    _check_version(client, kind, wanted)
    shared = open_folder(folder)
    checkpoint_leases = leases.leases_for(
        client,
        namespace,
        task.arguments.working_dir,
        name=wanted.name,
        seconds=cluster.job.lease_seconds,
    )

    def check() -> None:
        for lease in checkpoint_leases:
            lease.check()

    training = TrainingJob(
        client,
        namespace,
        kind,
        kind.render(wanted),
        [role.name for role in roles(parallel, [""] * wanted.count)],
        # Without a task, the results of an earlier job are already fetched and removed.
        adopts=shared.read(TASK) is not None,
        max_lost_pods=kind.max_lost_pods(wanted),
        max_restarts=kind.max_job_restarts(wanted),
        check=check,
    )
    preemption.on_sigterm(training.delete)
    line = task.line()
    if is_address(folder):
        line = portable(line, job_folder["local"])
    with leases.held(checkpoint_leases, lambda: training.is_over):
        shared.write(TASK, line.encode())
        training.run()
        if shared.read(TASK) is None:
            raise UserError(
                f"{training.name} is done, and another attempt of this step has taken over the "
                "model. This attempt has nothing left to do.",
                record=training.name,
            )
        fetch_outputs(job_folder)


def _check_version(client: Any, kind: ClusterJob, wanted: JobRequest) -> None:
    if not kind.success_policy_user(wanted):
        return
    version = connection.patiently(lambda: connection.version(client))
    if too_old := needs_newer_kubernetes(kind, wanted, version):
        problem, other = too_old
        raise SettingError(
            "kubeflow.job.kind",
            wanted.job.kind,
            f"cannot run on Kubernetes {'.'.join(map(str, version))}: {problem}",
            f"kubeflow.job.kind: {other}",
        )


def _namespace() -> str:
    namespace = os.environ.get(_OWN_NAMESPACE) or _own_namespace()
    if not namespace:
        raise UserError(
            "parallel.launcher: kubernetes needs a namespace, and this process does not run in a "
            f"pod with a service account. Set {_OWN_NAMESPACE} to the namespace of the job.",
            setting="parallel.launcher",
            value="kubernetes",
            record=_OWN_NAMESPACE,
        )
    return namespace


def _own_namespace() -> str:
    """The namespace of this pod; empty outside a pod."""
    try:
        return _NAMESPACE.read_text().strip()
    except OSError:
        return ""


def _owner(namespace: str) -> Json | None:
    """This pod: Kubernetes deletes the job with it.

    A job in another namespace has no owner. Kubernetes would look for the pod there, and delete
    the job because its owner is missing.
    """
    name, uid = os.environ.get(_POD), os.environ.get(_POD_UID)
    if not name or not uid or _own_namespace() not in ("", namespace):
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
