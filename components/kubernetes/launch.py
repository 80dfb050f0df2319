"""Starts a training's processes as a job of the cluster, from the Trainer's step on Kubeflow."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from stagecraft.components.kubernetes import connection, lease, volume, worker
from stagecraft.components.kubernetes.job_settings import CLUSTER, ClusterSettings
from stagecraft.components.kubernetes.jobs import kinds
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json
from stagecraft.components.kubernetes.training import Training
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import preemption, roles
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.worker import task_of

if TYPE_CHECKING:
    from stagecraft.components.kubernetes.volume import Artifacts

_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""

_OWN_NAMESPACE, _POD, _POD_UID = "STAGECRAFT_NAMESPACE", "KFP_POD_NAME", "KFP_POD_UID"
"""Environment variables. The backend sets the last two (argocompiler/common.go)."""

_SUCCESS_POLICY = (1, 31)
"""https://kubernetes.io/docs/concepts/workloads/controllers/job/#success-policy"""


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


@contextlib.contextmanager
def shared(inputs: Artifacts, outputs: Artifacts, checkpoint_root: str) -> Iterator[str]:
    """Has inputs and outputs where the job's pods can see them, for the time of the block.

    Yields:
        The folder of this training, by whose name its job goes.

    Raises:
        UserError: a folder is on no volume that they have.
    """
    cluster = settings()
    volume.check(cluster.job.folder, cluster.pod.volumes, "kubeflow.job.folder")
    volume.check(checkpoint_root, cluster.pod.volumes, "kubeflow.checkpoints")
    folder = pathlib.Path(cluster.job.folder, volume.job_name(outputs))
    with volume.shared(inputs, outputs, folder, cluster.pod.volumes):
        yield str(folder)
    # First: whoever finds a task finds what came of it.
    (folder / worker.TASK).unlink(missing_ok=True)
    volume.remove(folder)


def run(path: str, fn_args: Any, parallel: ParallelSettings, folder: str) -> None:
    """Trains in a job, to its end.

    Args:
        path: dotted path of ``run_fn``.
        fn_args: as TFX gives them, with paths that the job's pods can see.
        parallel: the topology.
        folder: of this training.

    Raises:
        UserError: it failed, or may not be started.
    """
    cluster, place = settings(), pathlib.Path(folder)
    namespace = _namespace()
    wanted = request(cluster, parallel, place, namespace)
    client = connection.connect()
    _check_version(client, wanted)
    training = Training(
        client,
        namespace,
        kinds.render(wanted),
        [role.name for role in roles.roles(parallel, [""] * wanted.count)],
        container=kinds.CONTAINERS[cluster.job.kind],
        # Without a task, this is no further attempt: a job's results went when its model was taken.
        adopts=(place / worker.TASK).exists(),
        # See jobs.tfjob.
        restarts=wanted.max_restarts * wanted.count if cluster.job.kind == "tfjob" else None,
        write_log=_print,
    )
    preemption.before_end(training.delete)
    with contextlib.ExitStack() as stack:
        with volume.writable(place):
            lease.write(place / worker.TASK, task_of(path, fn_args))
            stack.enter_context(lease.renewed(place, cluster.job.lease_seconds))
        training.run()


def request(
    cluster: ClusterSettings, parallel: ParallelSettings, folder: pathlib.Path, namespace: str
) -> JobRequest:
    """What is asked of the cluster for a topology."""
    served = parallel.strategy == "parameter_server"
    return JobRequest(
        name=folder.name,
        namespace=namespace,
        image=cluster.image,
        command=("python", "-m", worker.__name__, str(folder)),
        processes=roles.jobs(parallel) or {"worker": 1},
        serves=frozenset({"worker", "ps"}) if served else frozenset(),
        max_restarts=parallel.max_restarts,
        pod=cluster.pod,
        job=cluster.job,
        owner=_owner(namespace),
    )


def _check_version(client: Any, wanted: JobRequest) -> None:
    """An older server drops the field that says that the chief's end is the job's."""
    if not wanted.serves or wanted.job.kind == "tfjob":
        return
    found = connection.version(client)
    if found < _SUCCESS_POLICY:
        needed, there = (".".join(map(str, each)) for each in (_SUCCESS_POLICY, found))
        raise UserError(
            f"parallel.strategy: parameter_server: kubeflow.job.kind: {wanted.job.kind} needs "
            f"Kubernetes {needed} (a Job's successPolicy), and this is {there}; use "
            "kubeflow.job.kind: tfjob, or parallel.strategy: multi_worker_mirrored"
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
