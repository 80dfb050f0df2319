"""Splits the Trainer's settings between its step and the pods of its cluster job."""

from __future__ import annotations

from typing import Any

from stagecraft.components import Trainer
from stagecraft.components.kubernetes.job_folder import exchange
from stagecraft.components.kubernetes.jobs.job_settings import CLUSTER, ClusterSettings
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings, Step

_WITHOUT_RESOURCES: dict[str, Any] = {
    "cpu": None,
    "memory": None,
    "gpus": 0,
    "shared_memory": None,
    "node_selector": {},
    "tolerations": (),
}
"""The step only waits: it gets volumes, secrets and variables, and no resources."""


def starts_job(node: Any) -> bool:
    """Whether a component is this project's Trainer with ``parallel.launcher: kubernetes``."""
    return isinstance(node, Trainer) and node.exec_properties["parallel_launcher"] == "kubernetes"


def step_of(node: Any, wanted: Step, settings: KubeflowSettings) -> Step:
    """Settings of the Trainer's step."""
    pods = PodSettings.model_validate(
        {name: getattr(wanted, name) for name in PodSettings.model_fields}
    )
    exchange.check(settings.job.folder, pods.volumes, "kubeflow.job.folder")
    root = node.exec_properties["checkpoint_root"]
    exchange.check(str(root), pods.volumes, "kubeflow.checkpoints")
    cluster = ClusterSettings(image=wanted.image or settings.image, job=settings.job, pod=pods)
    variable = {CLUSTER: cluster.model_dump_json(exclude_defaults=True)}
    return wanted.model_copy(update={**_WITHOUT_RESOURCES, "env": {**wanted.env, **variable}})
