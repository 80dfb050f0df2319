"""A TrainJob of Kubeflow Trainer 2.x, with the runtime of ``manifests/trainer-runtime``.

Read in the code of Trainer 2.3.0 and JobSet 0.12 (github.com/kubeflow/trainer,
pkg/apis/trainer/v1alpha1/trainjob_types.go: RuntimePatch;
pkg/runtime/framework/plugins/jobset/jobset.go: IdentifyPodNetwork). The Trainer makes a JobSet of
the runtime, of the same name, with one Indexed Job in it: processes are in the order of their
kinds, on hosts ``NAME-node-0-INDEX.NAME``, and make their ``TF_CONFIG`` from that
(``trainer_module.cluster.adopt_job``).

As in an Indexed Job, all processes get the same resources. Where the job's end is the chief's, the
runtime's Job needs its success policy, which Kubernetes has from 1.31 on.
"""

from __future__ import annotations

from collections import Counter

from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.job_settings import JobSettings
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, JobRequest, Json
from stagecraft.schemas.errors import UserError

RUNTIME = "stagecraft"
"""Name of the TrainingRuntime, in the namespace of the job."""

CONTAINER = "node"
"""Of the runtime; its replicated job has the same name."""

RESTARTS = 3
"""Of each process, as the runtime says: a TrainJob has no field for it."""

MANAGER = "stagecraft.dev/trainer"


def render(request: JobRequest) -> list[Json]:
    """The TrainJob alone.

    Raises:
        UserError: something is asked for that a TrainJob cannot say.
    """
    _check(request)
    return [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": request.metadata(),
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "TrainingRuntime",
                    "name": RUNTIME,
                },
                "trainer": {
                    "image": request.pod.image or request.image,
                    "command": list(request.command),
                    "env": pods.environment(request),
                    "numNodes": request.count,
                    **pods.present("resourcesPerNode", pods.resources(request.pod, "worker")),
                },
                "runtimePatches": [_patch(request)],
                "activeDeadlineSeconds": request.job.deadline_seconds,
            },
        }
    ]


def _patch(request: JobRequest) -> Json:
    """What the field ``trainer`` has no place for."""
    pod = request.pod
    spec = {
        **pods.present("serviceAccountName", request.job.service_account),
        **pods.placement(pod),
        **pods.present("volumes", pods.volumes(pod)),
    }
    if found := pods.mounts(pod):
        spec["containers"] = [{"name": CONTAINER, "volumeMounts": found}]
    template = {
        "metadata": {"labels": {JOB_LABEL: request.name}},
        **pods.present("spec", spec),
    }
    return {
        "manager": MANAGER,
        "trainingRuntimeSpec": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {"name": CONTAINER, "template": {"spec": {"template": template}}}
                    ]
                }
            }
        },
    }


def _check(request: JobRequest) -> None:
    """Refuses by name what would be lost on the way, or turned down by the server."""
    pod, job = request.pod, request.job
    if job.priority_class:
        raise _error(
            f"kubeflow.job.priority_class: {job.priority_class}",
            "has no field for one",
            "priorityClassName in manifests/trainer-runtime",
        )
    if job.ttl_seconds != JobSettings.model_fields["ttl_seconds"].default:
        raise _error(
            f"kubeflow.job.ttl_seconds: {job.ttl_seconds}",
            "is there until somebody deletes it",
            f"kubeflow.job.ttl_seconds: {JobSettings.model_fields['ttl_seconds'].default}",
        )
    if pod.image_pull_policy:
        raise _error(
            f"kubeflow.steps.Trainer.image_pull_policy: {pod.image_pull_policy}",
            "has no field for it",
            "imagePullPolicy in manifests/trainer-runtime, or an image by its digest",
        )
    if request.max_restarts != RESTARTS:
        raise _error(
            f"parallel.max_restarts: {request.max_restarts}",
            f"restarts each process as its runtime says, {RESTARTS} times",
            f"parallel.max_restarts: {RESTARTS}",
        )
    # Patches list mounts by the volume's name, which may be there once (trainjob_types.go).
    for claim, times in Counter(volume.claim for volume in pod.volumes).items():
        if times > 1:
            raise _error(
                f"kubeflow.steps.Trainer.volumes: {claim} is mounted {times} times",
                "mounts a volume once",
                "one mount of the whole volume",
            )


def _error(found: str, why: str, works: str) -> UserError:
    return UserError(f"{found}: a TrainJob {why}; use {works}, or kubeflow.job.kind: job.")
