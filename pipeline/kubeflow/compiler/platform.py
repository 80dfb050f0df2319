"""Writes a step's Kubernetes settings into its container, its task, and the platform document.

``extendPodSpecPatch`` (backend/src/v2/driver/k8s.go) reads the second YAML document,
``platforms.kubernetes.deploymentSpec.executors``. Its fields are those of
``KubernetesExecutorConfig`` (kubernetes_platform/proto/kubernetes_executor_config.proto).
"""

from __future__ import annotations

from stagecraft.common import kubernetes_syntax
from stagecraft.common.errors import SettingError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings.kubeflow import Step

_SINCE = {
    "tolerations": (2, 1),
    "image_pull_policy": (2, 1),
    "timeout_seconds": (2, 1),
    "shared_memory": (2, 3),
    "volumes.sub_path": (2, 16),
}
"""The first version of the backend that supports a setting: go.mod of its tags pins the version of
``KubernetesExecutorConfig``. Drivers up to 2.4.0 fail on other fields; later ones ignore them."""


def check(name: str, wanted: Step, version: str) -> None:
    """Refuses settings that a version of the backend does not support.

    Args:
        name: of the component.
        wanted: its settings.
        version: ``kubeflow.backend_version``.

    Raises:
        SettingError: the version is older than the setting.
    """
    values = {**wanted.model_dump(), "volumes.sub_path": any(v.sub_path for v in wanted.volumes)}
    for setting, since in _SINCE.items():
        if values[setting] and _numbers(version) < since:
            raise SettingError(
                f"kubeflow.steps.{name}.{setting}",
                values[setting],
                f"needs Kubeflow Pipelines {since[0]}.{since[1]}, and kubeflow.backend_version is "
                f"{version}",
                "a newer backend, or remove the setting",
            )


def apply(step: specs.Step, wanted: Step, version: str) -> Json:
    """Writes settings into container and task; returns the entry of the platform document.

    Args:
        version: ``kubeflow.backend_version``.
    """
    container = step.container
    if container is None:
        return {}
    if wanted.image:
        container["image"] = wanted.image
    resources = container.get("resources", {}) | _resources(wanted)
    if resources:
        container["resources"] = resources
    if wanted.env:
        container["env"] = [{"name": name, "value": value} for name, value in wanted.env.items()]
    if wanted.retries:
        step.task["retryPolicy"] = {
            "maxRetryCount": wanted.retries,
            "backoffDuration": "30s",
            "backoffFactor": 2.0,
            "backoffMaxDuration": "600s",
        }
    policy = wanted.pull_policy(container["image"])
    if _numbers(version) < _SINCE["image_pull_policy"]:
        policy = wanted.image_pull_policy
    return {**_platform(wanted), **({"imagePullPolicy": policy} if policy else {})}


def document(executors: Json) -> Json:
    """The platform document; empty without entries."""
    used = {label: entry for label, entry in executors.items() if entry}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": used}}}} if used else {}


def _resources(wanted: Step) -> Json:
    """Numbers for older backends (memory in 10^9 bytes), and quantities for newer ones."""
    resources: Json = {}
    if wanted.cpu:
        resources |= {"cpuLimit": _number(wanted.cpu), "resourceCpuLimit": wanted.cpu}
    if wanted.memory:
        resources |= {
            "memoryLimit": _number(wanted.memory) / 1e9,
            "resourceMemoryLimit": wanted.memory,
        }
    if wanted.gpus:
        resources["accelerator"] = {
            "count": str(wanted.gpus),
            "type": wanted.gpu_resource,
            "resourceCount": str(wanted.gpus),
            "resourceType": wanted.gpu_resource,
        }
    return resources


def _platform(wanted: Step) -> Json:
    entry: Json = {}
    # Not secretNameParameter and pvcNameParameter: drivers up to 2.4.0 fail on fields that they do
    # not know, and all versions read these.
    secrets: dict[str, list[Json]] = {}
    for secret in wanted.secrets:
        pair = {"secretKey": secret.key, "envVar": secret.env}
        secrets.setdefault(secret.name, []).append(pair)
    if secrets:
        entry["secretAsEnv"] = [
            {"secretName": name, "keyToEnv": pairs} for name, pairs in secrets.items()
        ]
    if wanted.volumes:
        entry["pvcMount"] = [
            {
                "constant": volume.claim,
                "mountPath": volume.path,
                **({"subPath": volume.sub_path} if volume.sub_path else {}),
            }
            for volume in wanted.volumes
        ]
    if wanted.node_selector:
        entry["nodeSelector"] = {"labels": dict(wanted.node_selector)}
    if wanted.tolerations:
        entry["tolerations"] = [
            {key: value for key, value in toleration.model_dump().items() if value}
            for toleration in wanted.tolerations
        ]
    if wanted.shared_memory:
        # Not enabledSharedMemory, which the backend's driver does not read.
        entry["emptyDirMounts"] = [
            {
                "volumeName": "shm",
                "mountPath": "/dev/shm",
                "medium": "Memory",
                "sizeLimit": wanted.shared_memory,
            }
        ]
    if wanted.timeout_seconds:
        entry["activeDeadlineSeconds"] = str(wanted.timeout_seconds)
    return entry


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


def _number(text: str) -> float:
    amount = kubernetes_syntax.parse_quantity(text)
    assert amount is not None  # settings refuse other texts
    return float(amount)
