"""The pods of a training, for all kinds of cluster jobs."""

from __future__ import annotations

from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, PART_OF, PORT, JobRequest, Json
from stagecraft.components.kubernetes.jobs.settings import PodSettings

ANNOTATIONS = {"sidecar.istio.io/inject": "false"}
"""A sidecar would outlive the training, and its pod would never complete."""

GRACE_SECONDS = 30
"""Time for a checkpoint after SIGTERM; a little more than ``preemption.GRACE_SECONDS``."""


def template(request: JobRequest, role: str, *, container: str, **spec: object) -> Json:
    """A pod template."""
    pod, job = request.pod, request.job
    return {
        "metadata": {
            "labels": {PART_OF: "stagecraft", JOB_LABEL: request.name},
            "annotations": dict(ANNOTATIONS),
        },
        "spec": {
            "containers": [_container(request, role, container)],
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
    """The fields of a pod's specification that select nodes."""
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


def _container(request: JobRequest, role: str, name: str) -> Json:
    image = request.pod.image or request.image
    return {
        "name": name,
        "image": image,
        "command": list(request.command),
        "env": environment(request),
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **present("imagePullPolicy", request.pod.pull_policy(image)),
        **present("resources", resources(request.pod, role)),
        **present("volumeMounts", mounts(request.pod)),
    }


def environment(request: JobRequest) -> list[Json]:
    """Environment variables of a container; secrets by reference."""
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


def resources(pod: PodSettings, role: str) -> Json:
    """Resources of a role's container. Requests equal limits: one slow process slows all others."""
    gpus = {"ps": 0, "evaluator": min(pod.gpus, 1)}.get(role, pod.gpus)
    limits: Json = {
        **present("cpu", pod.cpu),
        **present("memory", pod.memory),
        **({pod.gpu_resource: str(gpus)} if gpus else {}),
    }
    return {"limits": limits, "requests": dict(limits)} if limits else {}


def volumes(pod: PodSettings) -> list[Json]:
    """Volumes of a pod: each claim once, and shared memory."""
    claims = dict.fromkeys(volume.claim for volume in pod.volumes)
    result: list[Json] = [
        {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim}}
        for index, claim in enumerate(claims)
    ]
    if pod.shared_memory:
        shm = {"medium": "Memory", "sizeLimit": pod.shared_memory}
        result.append({"name": "shm", "emptyDir": shm})
    return result


def mounts(pod: PodSettings) -> list[Json]:
    """Mounts of a container, of its pod's volumes."""
    claims = list(dict.fromkeys(volume.claim for volume in pod.volumes))
    result: list[Json] = [
        {
            "name": f"claim-{claims.index(volume.claim)}",
            "mountPath": volume.path,
            **present("subPath", volume.sub_path),
        }
        for volume in pod.volumes
    ]
    if pod.shared_memory:
        result.append({"name": "shm", "mountPath": "/dev/shm"})
    return result


def present(name: str, value: object) -> Json:
    """The field, where it has a value."""
    return {name: value} if value else {}
