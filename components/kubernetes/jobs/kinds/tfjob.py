"""A TFJob of Kubeflow's Training Operator 1.x, which gives each process a Service and TF_CONFIG.

From the code of 1.9 (github.com/kubeflow/training-operator, branch release-1.9, pkg/):

* ``controller.v1/tensorflow/tensorflow.go``, genClusterSpec: the cluster in ``TF_CONFIG`` has all
  roles, also an evaluator. A process alone gets no ``TF_CONFIG`` (util.go, isDistributed).
* ``controller.v1/tensorflow/tfjob_controller.go``, UpdateJobStatus: the job succeeds with its
  chief, and without a chief with worker 0. It fails with any process that fails permanently.
* ``controller.v1/common/pod.go``, ReconcilePods: under ExitCode, the operator replaces a pod that
  ended with 128 or more. createNewPod overwrites the pod's own restartPolicy, with a warning.
* ``core/job.go``, PastBackoffLimit, and ``common/util/fake_workqueue.go``: with ExitCode, only a
  ``backoffLimit`` of 0 limits anything. So the launcher counts the lost pods.
* ``core/status.go``, UpdateJobReplicaStatuses: a pod that runs and has a deletionTimestamp counts
  as failed. So a pod that is drained, evicted or deleted ends the job, and the launcher starts the
  job anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, JobState
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json

_REPLICA_TYPES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index")


class TFJob(ClusterJob):
    """A job with replicas for each role."""

    name = "tfjob"
    description = "a TFJob of Kubeflow's Training Operator 1.x"
    group, version, kind = "kubeflow.org", "v1", "TFJob"
    controller = "Kubeflow's Training Operator 1.x"
    container = "tensorflow"  # the operator looks for this name
    succeeded = "Succeeded"
    resources_by_role = True
    quota = ("count/tfjobs.kubeflow.org",)

    def render(self, request: JobRequest) -> list[Json]:
        """Makes the TFJob."""
        spec = {
            "runPolicy": {
                # The default, None, keeps pods that never end, and their GPUs.
                "cleanPodPolicy": "Running",
                "activeDeadlineSeconds": request.job.deadline_seconds,
                "ttlSecondsAfterFinished": request.job.ttl_seconds,
                "backoffLimit": request.max_restarts * request.count,
            },
            # Empty: the job succeeds when the chief, or worker 0, ends. AllWorkers would wait for
            # a worker that was lost after the others had finished.
            "successPolicy": "",
            "tfReplicaSpecs": {
                _REPLICA_TYPES[role]: self._replicas(request, role, count)
                for role, count in request.processes.items()
            },
        }
        return [self.body(request, spec)]

    def max_lost_pods(self, request: JobRequest) -> int:
        """The restarts of all processes."""
        return request.max_restarts * request.count

    def max_job_restarts(self, request: JobRequest) -> int:
        """The restarts of one process."""
        return request.max_restarts

    def fails_with_any_pod(self, ended: JobState) -> bool:
        """Whether a replica failed; otherwise the job's deadline has passed."""
        return "replica(s) failed" in ended.message

    def is_suspended(self, job: Json) -> bool:
        """Whether its run policy suspends it."""
        return bool(job.get("spec", {}).get("runPolicy", {}).get("suspend"))

    def role(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], roles: Sequence[str]
    ) -> str | None:
        """Reads the operator's labels."""
        role, index = map(labels.get, _LABELS)
        return f"{role.lower()} {index}" if role and index else None

    def _replicas(self, request: JobRequest, role: str, count: int) -> Json:
        return {
            "replicas": count,
            "restartPolicy": "ExitCode",
            "template": pods.template(
                request,
                role,
                container=self.container,
                # The operator checks the job's deadline only when a pod changes.
                activeDeadlineSeconds=request.job.deadline_seconds,
            ),
        }


TF_JOB = TFJob()
