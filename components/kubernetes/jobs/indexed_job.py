"""An Indexed Job with a headless Service: on any cluster, without an operator.

https://kubernetes.io/docs/concepts/workloads/controllers/job/ (completion modes, pod failure
policy, success policy) and .../docs/tasks/job/job-with-pod-to-pod-communication/.

Where some processes never end by themselves, the job needs its success policy, which Kubernetes has
from 1.31 on: an older server drops the field without a word, and the job runs to its deadline.
"""

from __future__ import annotations

from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, PORT, JobRequest, Json
from stagecraft.trainer_module.processes import exit_codes

CONTAINER = "training"

_FOR_GOOD = list(range(1, 128))
"""Exit codes that no other attempt would change: trainer_module.processes.exit_codes."""


def render(request: JobRequest) -> list[Json]:
    """The Service and the Job; processes are in the order of their kinds."""
    return [_service(request), _job(request)]


def _service(request: JobRequest) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": request.metadata(),
        "spec": {
            "clusterIP": "None",
            "selector": {JOB_LABEL: request.name},
            "ports": [{"name": "training", "port": PORT}],
            # Who waits for a peer listens before it is ready.
            "publishNotReadyAddresses": True,
        },
    }


def _job(request: JobRequest) -> Json:
    assert exit_codes.PERMANENT in _FOR_GOOD and exit_codes.LOST_PEER not in _FOR_GOOD
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": request.metadata(),
        "spec": {
            "completionMode": "Indexed",
            "completions": request.count,
            "parallelism": request.count,
            # In step, one that is lost takes all others along: each attempt is one of each.
            "backoffLimit": request.max_restarts * request.count,
            "activeDeadlineSeconds": request.job.deadline_seconds,
            "ttlSecondsAfterFinished": request.job.ttl_seconds,
            # Not before the old pod is gone: two processes would have one address.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    # Before the exit codes: an evicted pod may have any.
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": CONTAINER,
                            "operator": "In",
                            "values": _FOR_GOOD,
                        },
                    },
                ]
            },
            **_success(request),
            "template": pods.template(
                request,
                "worker",
                container=CONTAINER,
                subdomain=request.name,
                restartPolicy="Never",  # the pod failure policy wants it so
            ),
        },
    }


def _success(request: JobRequest) -> Json:
    """Where some never end by themselves, the chief's end is the job's."""
    if not request.serves:
        return {}
    return {"successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}}
