"""The worker pools of a training on Vertex AI, for TFX's Trainer.

``tfx.extensions.google_cloud_ai_platform.Trainer`` starts a CustomJob from its ``custom_config``
(training_clients.py and runner.py, alike in TFX 1.16 and 1.21)::

    custom_config = {
        "ai_platform_enable_vertex": True,
        "ai_platform_vertex_region": "europe-west4",
        "ai_platform_training_args": {
            "project": "my-project",
            "job_spec": {"worker_pool_specs": [...]},
        },
    }

It overwrites the command of each container, and gives a container to each pool without one. So
these specs have no commands, and no empty pools.

Vertex AI sets ``TF_CONFIG`` in each process, with pool 0 as its chief:
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.settings import PodSettings
from stagecraft.contrib.vertex import unsupported
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.parallel import cluster

POOLS = ("chief", "worker", "ps", "evaluator")

_WITH_GPUS = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")
"""Machine types with a fixed number of GPUs:
https://cloud.google.com/vertex-ai/docs/training/configure-compute#gpu-compatibility"""


def worker_pool_specs(
    settings: PipelineSettings, machines: Mapping[str, str], image: str | None = None
) -> list[dict[str, Any]]:
    """A ``WorkerPoolSpec`` for each role, in Vertex AI's order.

    Args:
        settings: the topology, and the settings of the Trainer's step. ``cpu`` and ``memory`` have
            no effect.
        machines: machine types by role (:data:`POOLS`); the empty name stands for all others.
        image: of all containers; default: the Trainer's, or ``kubeflow.image``.

    Raises:
        SettingError: Vertex AI, or TFX's Trainer, does not support the settings.
    """
    unsupported.check_step(settings.kubeflow, "Trainer")
    pod = settings.kubeflow.step("Trainer")
    counts = _counts(cluster.jobs(settings.parallel))
    _check(settings, counts, machines)
    return [
        {
            "machine_spec": _machine(pod, role, machines.get(role) or machines.get("")),
            "replica_count": count,
            "container_spec": {
                "image_uri": image or pod.image or settings.kubeflow.image,
                **pods.present("env", [{"name": k, "value": v} for k, v in pod.env.items()]),
            },
        }
        for role, count in counts.items()
    ]


def _counts(processes: dict[str, int]) -> dict[str, int]:
    """Processes of each pool; without a chief, worker 0 is Vertex AI's chief."""
    if not processes:
        return {"chief": 1}
    if "chief" in processes:
        return processes
    workers = {"worker": processes["worker"] - 1}
    return {"chief": 1, **workers, **{k: n for k, n in processes.items() if k != "worker"}}


def _check(settings: PipelineSettings, counts: dict[str, int], machines: Mapping[str, str]) -> None:
    if tuple(counts) != POOLS[: len(counts)]:
        empty = ", ".join(role for role in POOLS if role not in counts)
        raise SettingError(
            "parallel.evaluator",
            "true",
            f"uses the last worker pool, so the pools before it ({empty}) are empty. The TFX "
            "Trainer adds a container without a machine type to each empty pool",
            "parallel.evaluator: false, or parallel.strategy: parameter_server",
        )
    if settings.parallel.launcher not in ("auto", "in_process"):
        raise SettingError(
            "parallel.launcher",
            settings.parallel.launcher,
            "has no effect: Vertex AI starts the processes",
            "parallel.launcher: auto",
        )
    if unknown := sorted(set(machines) - {"", *counts}):
        raise SettingError(
            "--machine-type",
            f"{unknown[0]}={machines[unknown[0]]}",
            "is for a role that this topology does not have",
            f"one of {', '.join(counts)}",
        )


def _machine(pod: PodSettings, role: str, machine: str | None) -> dict[str, Any]:
    if not machine:
        raise SettingError(
            "--machine-type",
            "none",
            f"is set for the {role}, but Vertex AI needs a machine type and ignores cpu and memory",
            f"--machine-type n1-standard-8, or {role}=n1-standard-8",
        )
    gpus = int(pods.resources(pod, role).get("limits", {}).get(pod.gpu_resource, 0))
    if machine.startswith(_WITH_GPUS) and gpus != pod.gpus:
        used = f"{gpus} of the {pod.gpus}" if gpus else "none of the"
        raise SettingError(
            "--machine-type",
            machine,
            f"has a fixed number of GPUs, but the {role} uses {used} GPUs",
            f"another type for it, such as --machine-type {role}=n1-standard-8",
        )
    accelerators = {"accelerator_type": pod.gpu_resource, "accelerator_count": gpus}
    return {"machine_type": machine, **(accelerators if gpus else {})}
