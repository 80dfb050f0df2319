"""Writes a step's Kubernetes settings into its container, its task, and the platform document.

The second YAML document, ``platforms.kubernetes.deploymentSpec.executors``, is read by
``extendPodSpecPatch`` (backend/src/v2/driver/k8s.go); its fields are those of
``KubernetesExecutorConfig`` (kubernetes_platform/proto/kubernetes_executor_config.proto).
"""

from __future__ import annotations

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.proto import quantity
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings.kubeflow import Step


def apply(step: specs.Step, wanted: Step) -> Json:
    """Writes settings into container and task; returns the entry of the platform document."""
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
    return _platform(wanted)


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
    if wanted.secrets:
        entry["secretAsEnv"] = [
            {
                "secretName": secret.name,
                "secretNameParameter": _constant(secret.name),
                "keyToEnv": [{"secretKey": secret.key, "envVar": secret.env}],
            }
            for secret in wanted.secrets
        ]
    if wanted.volumes:
        entry["pvcMount"] = [
            {
                "constant": volume.claim,
                "pvcNameParameter": _constant(volume.claim),
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
    if wanted.image_pull_policy:
        entry["imagePullPolicy"] = wanted.image_pull_policy
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


def _constant(value: str) -> Json:
    return {"runtimeValue": {"constant": value}}


def _number(text: str) -> float:
    amount = quantity.parse(text)
    assert amount is not None  # settings refuse other texts
    return float(amount)
