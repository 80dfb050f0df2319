"""A TrainJob of Kubeflow Trainer 2.x, with the runtime of ``manifests/trainer-runtime``.

From the code of Trainer 2.3.0 and JobSet 0.12 (github.com/kubeflow/trainer,
pkg/apis/trainer/v1alpha1/trainjob_types.go: RuntimePatch;
pkg/runtime/framework/plugins/jobset/jobset.go: IdentifyPodNetwork). The Trainer makes a JobSet of
the same name from the runtime, with one Indexed Job in it. Processes are in the order of their
roles, on hosts ``NAME-node-0-INDEX.NAME``, and make ``TF_CONFIG`` from their host names
(``trainer_module.parallel.cluster.adopt_job``).

As in an Indexed Job, all processes get the same resources, and the runtime's Job needs its success
policy to end with the chief.
"""

from __future__ import annotations

from collections import Counter

from stagecraft.common.errors import SettingError
from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, RequiredObject
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, JobRequest, Json
from stagecraft.components.kubernetes.jobs.settings import JobSettings

RUNTIME = "stagecraft"  # name of the TrainingRuntime, in the namespace of the job
RESTARTS = 3  # of each process, as the runtime says: a TrainJob has no field for restarts
_MANAGER = "stagecraft.dev/trainer"


class TrainJob(ClusterJob):
    """A job that fills in a TrainingRuntime."""

    name = "trainjob"
    description = "a TrainJob of Kubeflow Trainer 2.x, with the runtime of manifests/"
    group, version, kind = "trainer.kubeflow.org", "v1alpha1", "TrainJob"
    controller = "Kubeflow Trainer 2.x"
    container = "node"  # of the runtime; its replicated job has the same name
    quota = ("count/trainjobs.trainer.kubeflow.org", "count/jobs.batch")

    def render(self, request: JobRequest) -> list[Json]:
        """Makes the TrainJob."""
        _check(request)
        spec = {
            "runtimeRef": {"apiGroup": self.group, "kind": "TrainingRuntime", "name": RUNTIME},
            "trainer": {
                "image": request.pod.image or request.image,
                "command": list(request.command),
                "env": pods.environment(request),
                "numNodes": request.count,
                **pods.present("resourcesPerNode", pods.resources(request.pod, "worker")),
            },
            "runtimePatches": [self._patch(request)],
            "activeDeadlineSeconds": request.job.deadline_seconds,
        }
        return [self.body(request, spec)]

    def required_objects(self, namespace: str) -> list[RequiredObject]:
        """The TrainingRuntime."""
        path = f"/apis/{self.group}/{self.version}/namespaces/{namespace}/trainingruntimes"
        return [
            RequiredObject(
                "runtime",
                f"{path}/{RUNTIME}",
                f"TrainingRuntime {RUNTIME}",
                "write the namespace into manifests/trainer-runtime/kustomization.yaml and run "
                "kubectl apply -k manifests/trainer-runtime",
            )
        ]

    def success_policy_user(self, request: JobRequest) -> str:
        """Each TrainJob: the runtime's Job has a success policy."""
        return "a TrainJob"

    def _patch(self, request: JobRequest) -> Json:
        mounts = pods.mounts(request.pod)
        spec = {
            **pods.present("serviceAccountName", request.job.service_account),
            **pods.placement(request.pod),
            **pods.present("volumes", pods.volumes(request.pod)),
            **pods.present(
                "containers", [{"name": self.container, "volumeMounts": mounts}] if mounts else []
            ),
        }
        pod = {"metadata": {"labels": {JOB_LABEL: request.name}}, **pods.present("spec", spec)}
        job = {"name": self.container, "template": {"spec": {"template": pod}}}
        return {
            "manager": _MANAGER,
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
        }


def _check(request: JobRequest) -> None:
    """Refuses settings that the controller would drop, or the server would refuse."""
    pod, job = request.pod, request.job
    ttl_seconds = JobSettings.model_fields["ttl_seconds"].default
    # Patches list mounts by the volume's name, once each (trainjob_types.go).
    claims = Counter(volume.claim for volume in pod.volumes)
    [(claim, times)] = claims.most_common(1) or [("", 0)]
    other_kind = "kubeflow.job.kind: job"
    for is_wrong, setting, value, problem, use in (
        (
            job.priority_class,
            "kubeflow.job.priority_class",
            job.priority_class,
            "cannot be set: a TrainJob has no field for it",
            "priorityClassName in manifests/trainer-runtime",
        ),
        (
            job.ttl_seconds != ttl_seconds,
            "kubeflow.job.ttl_seconds",
            job.ttl_seconds,
            "has no effect: a TrainJob stays until someone deletes it",
            f"the default, kubeflow.job.ttl_seconds: {ttl_seconds}",
        ),
        (
            pod.image_pull_policy,
            "kubeflow.steps.Trainer.image_pull_policy",
            pod.image_pull_policy,
            "cannot be set: a TrainJob has no field for it",
            "imagePullPolicy in manifests/trainer-runtime, an image by its digest",
        ),
        (
            request.max_restarts != RESTARTS,
            "parallel.max_restarts",
            request.max_restarts,
            f"differs from manifests/trainer-runtime, which restarts each process {RESTARTS} times",
            f"parallel.max_restarts: {RESTARTS}",
        ),
    ):
        if is_wrong:
            raise SettingError(setting, value, problem, f"{use}, or {other_kind}")
    if times > 1:
        raise SettingError(
            "kubeflow.steps.Trainer.volumes",
            claim,
            f"is mounted {times} times, but a TrainJob mounts a volume once",
            f"one mount of the whole volume, or {other_kind}",
            shown=f"claim {claim!r}",
        )


TRAIN_JOB = TrainJob()
