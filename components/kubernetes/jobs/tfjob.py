"""A TFJob of Kubeflow's Training Operator 1.x, which gives each process a Service and TF_CONFIG.

Read in its code of 1.9 (github.com/kubeflow/training-operator, branch release-1.9, pkg/):

* ``controller.v1/tensorflow/tensorflow.go``, genClusterSpec: all kinds of processes are in
  ``TF_CONFIG``'s cluster, an evaluator too; one process alone gets none (util.go, isDistributed).
* ``controller.v1/tensorflow/tfjob_controller.go``, UpdateJobStatus: the job succeeds with its
  chief, and without one with worker 0; it fails with any process that fails for good.
* ``controller.v1/common/pod.go``, ReconcilePods: under ExitCode, a pod that ended with 128 or more
  is made anew; createNewPod: the pod's own restartPolicy is overwritten, with a warning.
* ``core/job.go``, PastBackoffLimit, and ``common/util/fake_workqueue.go``: with ExitCode, only a
  ``backoffLimit`` of 0 limits anything. Whoever follows the job has to count.
"""

from __future__ import annotations

from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.request import JobRequest, Json

CONTAINER = "tensorflow"
"""The operator looks for this name."""

REPLICA_TYPES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def render(request: JobRequest) -> list[Json]:
    """The TFJob alone."""
    job = request.job
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": request.metadata(),
            "spec": {
                "runPolicy": {
                    # The default, None, leaves pods that serve for ever with their GPUs.
                    "cleanPodPolicy": "Running",
                    "activeDeadlineSeconds": job.deadline_seconds,
                    "ttlSecondsAfterFinished": job.ttl_seconds,
                    "backoffLimit": request.max_restarts * request.count,
                },
                # The chief's end, or worker 0's: AllWorkers would wait for one that was lost after
                # the others had finished.
                "successPolicy": "",
                "tfReplicaSpecs": {
                    REPLICA_TYPES[kind]: _replicas(request, kind, count)
                    for kind, count in request.processes.items()
                },
            },
        }
    ]


def _replicas(request: JobRequest, kind: str, count: int) -> Json:
    return {
        "replicas": count,
        "restartPolicy": "ExitCode",
        "template": pods.template(
            request,
            kind,
            container=CONTAINER,
            # The operator looks at the job's deadline only when something happens to a pod.
            activeDeadlineSeconds=request.job.deadline_seconds,
        ),
    }
