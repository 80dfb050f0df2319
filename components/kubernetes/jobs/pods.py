"""The pods of a training: the same for all kinds of jobs."""

from __future__ import annotations

from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, PART_OF, PORT, JobRequest, Json

ANNOTATIONS = {"sidecar.istio.io/inject": "false"}
"""A sidecar would outlive the training, and keep its pod from being done."""

GRACE_SECONDS = 30
"""For a checkpoint, after SIGTERM: ``preemption.GRACE_SECONDS`` and a little."""


def template(request: JobRequest, kind: str, *, container: str, **spec: object) -> Json:
    """A pod template.

    Args:
        request: what is asked for.
        kind: of process: chief, worker, ps or evaluator.
        container: the container's name.
        **spec: more of the pod's specification.
    """
    pod, job = request.pod, request.job
    return {
        "metadata": {
            "labels": {PART_OF: "stagecraft", JOB_LABEL: request.name},
            "annotations": dict(ANNOTATIONS),
        },
        "spec": {
            "containers": [_container(request, kind, container)],
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "automountServiceAccountToken": bool(job.service_account),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 0,
                "fsGroup": 0,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **present("serviceAccountName", job.service_account),
            **present("priorityClassName", job.priority_class),
            **placement(pod),
            **present("volumes", volumes(pod)),
            **spec,
        },
    }


def placement(pod: PodSettings) -> Json:
    """Of a pod's specification: on which nodes it may be."""
    return {
        **present("nodeSelector", dict(pod.node_selector)),
        **present(
            "tolerations",
            [
                {key: value for key, value in toleration.model_dump().items() if value}
                for toleration in pod.tolerations
            ],
        ),
    }


def _container(request: JobRequest, kind: str, name: str) -> Json:
    return {
        "name": name,
        "image": request.pod.image or request.image,
        "command": list(request.command),
        "env": environment(request),
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        **present("imagePullPolicy", request.pod.image_pull_policy),
        **present("resources", resources(request.pod, kind)),
        **present("volumeMounts", mounts(request.pod)),
    }


def environment(request: JobRequest) -> list[Json]:
    """Variables, secrets by reference only."""
    plain = {"PYTHONUNBUFFERED": "1", "STAGECRAFT_PORT": str(PORT), **request.pod.env}
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *(
            {
                "name": secret.env,
                "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}},
            }
            for secret in request.pod.secrets
        ),
    ]


def resources(pod: PodSettings, kind: str) -> Json:
    """Requests are the limits: who shares a node with a training slows all of its processes."""
    gpus = {"ps": 0, "evaluator": min(pod.gpus, 1)}.get(kind, pod.gpus)
    limits: Json = {
        **present("cpu", pod.cpu),
        **present("memory", pod.memory),
        **({pod.gpu_resource: str(gpus)} if gpus else {}),
    }
    return {"limits": limits, "requests": dict(limits)} if limits else {}


def volumes(pod: PodSettings) -> list[Json]:
    """Of a pod: claims, each once, and shared memory."""
    claims = dict.fromkeys(volume.claim for volume in pod.volumes)
    found: list[Json] = [
        {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim}}
        for index, claim in enumerate(claims)
    ]
    if pod.shared_memory:
        shm = {"medium": "Memory", "sizeLimit": pod.shared_memory}
        found.append({"name": "shm", "emptyDir": shm})
    return found


def mounts(pod: PodSettings) -> list[Json]:
    """Of a container: where its pod's volumes are."""
    claims = list(dict.fromkeys(volume.claim for volume in pod.volumes))
    found: list[Json] = [
        {
            "name": f"claim-{claims.index(volume.claim)}",
            "mountPath": volume.path,
            **present("subPath", volume.sub_path),
        }
        for volume in pod.volumes
    ]
    if pod.shared_memory:
        found.append({"name": "shm", "mountPath": "/dev/shm"})
    return found


def present(name: str, value: object) -> Json:
    """A field, if it has a value."""
    return {name: value} if value else {}
