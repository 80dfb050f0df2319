"""A Trainer that starts a job of the cluster: what its step gets, and what the job's pods get."""

from __future__ import annotations

from typing import Any

from stagecraft.components import Trainer
from stagecraft.components.kubernetes.job_folder import exchange
from stagecraft.components.kubernetes.jobs.job_settings import CLUSTER, ClusterSettings
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings, Step

_FOR_THE_JOB: dict[str, Any] = {
    "cpu": None,
    "memory": None,
    "gpus": 0,
    "shared_memory": None,
    "node_selector": {},
    "tolerations": (),
}
"""What a step has no use for that waits for others; it has its volumes, secrets and variables."""


def starts_job(node: Any) -> bool:
    """Whether a component is a Trainer of ours with ``parallel.launcher: kubernetes``."""
    return isinstance(node, Trainer) and node.exec_properties["parallel_launcher"] == "kubernetes"


def step_of(node: Any, wanted: Step, settings: KubeflowSettings) -> Step:
    """What the Trainer's step itself gets of what is wanted for its training.

    Raises:
        UserError: a folder is where the job's pods do not see it.
    """
    pods = PodSettings.model_validate(
        {name: getattr(wanted, name) for name in PodSettings.model_fields}
    )
    exchange.check(settings.job.folder, pods.volumes, "kubeflow.job.folder")
    root = node.exec_properties["checkpoint_root"]
    exchange.check(str(root), pods.volumes, "kubeflow.checkpoints")
    cluster = ClusterSettings(image=wanted.image or settings.image, job=settings.job, pod=pods)
    variable = {CLUSTER: cluster.model_dump_json(exclude_defaults=True)}
    return wanted.model_copy(update={**_FOR_THE_JOB, "env": {**wanted.env, **variable}})
