"""An Indexed Job with a headless Service: on any cluster, without an operator.

https://kubernetes.io/docs/concepts/workloads/controllers/job/ (completion modes, pod failure
policy, success policy) and .../docs/tasks/job/job-with-pod-to-pod-communication/.
"""

from __future__ import annotations

from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, Permission
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, PORT, JobRequest, Json
from stagecraft.trainer_module.processes import exit_codes

_PERMANENT = list(range(1, exit_codes.START_ERROR + 1))
"""Exit codes that another attempt would not change: trainer_module.processes.exit_codes."""

assert exit_codes.PERMANENT in _PERMANENT and exit_codes.LOST_PEER not in _PERMANENT


class IndexedJob(ClusterJob):
    """A Job whose pods have indexes, in the order of the roles."""

    name = "job"
    description = "an Indexed Job, on any cluster"
    group, version, kind = "batch", "v1", "Job"
    controller = "a Kubernetes with Jobs"
    needs_operator = False
    container = "training"
    quota = ("count/jobs.batch", "services", "count/services")

    def render(self, request: JobRequest) -> list[Json]:
        """Makes the Service and the Job."""
        policy = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}  # the chief's
        spec = {
            "completionMode": "Indexed",
            "completions": request.count,
            "parallelism": request.count,
            # When one process is lost, all others restart. With a limit for all pods, Kubernetes
            # would count each of them, and double the pause for each.
            "backoffLimitPerIndex": request.max_restarts,
            "maxFailedIndexes": 0,
            "activeDeadlineSeconds": request.job.deadline_seconds,
            "ttlSecondsAfterFinished": request.job.ttl_seconds,
            # A new pod before the old one is gone would be a second process at its address.
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
                            "containerName": self.container,
                            "operator": "In",
                            "values": _PERMANENT,
                        },
                    },
                ]
            },
            **pods.present("successPolicy", policy if request.serves else None),
            "template": pods.template(
                request,
                "worker",
                container=self.container,
                subdomain=request.name,
                restartPolicy="Never",  # required by the pod failure policy
            ),
        }
        return [_service(request), self.body(request, spec)]

    def permissions(self) -> list[Permission]:
        """Permissions for the Job and its Service."""
        return [*super().permissions(), Permission("", "services", ("create", "get", "delete"))]

    def success_policy_user(self, request: JobRequest) -> str:
        """A chief whose peers never end by themselves."""
        return "parameter_server in a Job" if request.serves else ""


def _service(request: JobRequest) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": request.metadata(),
        "spec": {
            "clusterIP": "None",
            "selector": {JOB_LABEL: request.name},
            "ports": [{"name": "training", "port": PORT}],
            # A process listens for its peers before its pod is ready.
            "publishNotReadyAddresses": True,
        },
    }


JOB = IndexedJob()
