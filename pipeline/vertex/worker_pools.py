"""The machines of a training on Vertex AI, as TFX's own Trainer for it wants them told.

``tfx.extensions.google_cloud_ai_platform.Trainer`` starts a CustomJob from its ``custom_config``.
Read in TFX 1.16 and 1.21, whose code for this is the same (training_clients.py, runner.py)::

    custom_config = {
        "ai_platform_enable_vertex": True,
        "ai_platform_vertex_region": "europe-west4",
        "ai_platform_training_args": {
            "project": "my-project",
            "job_spec": {"worker_pool_specs": [...]},
        },
    }

It writes the command of each container itself, over whatever is there, and gives a container to
each pool that has none. So what is here has no command, and no pool may be left empty.

Vertex AI sets ``TF_CONFIG`` in each process, with pool 0 as its chief:
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.components.kubernetes.jobs import pods
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.pipeline.vertex import unsupported
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel import roles

POOLS = ("chief", "worker", "ps", "evaluator")
"""What the processes of a pool are, by its place in the list."""

_WITH_GPUS = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")
"""Machine types that have a fixed number of GPUs:
https://cloud.google.com/vertex-ai/docs/training/configure-compute#gpu-compatibility"""


def worker_pool_specs(
    settings: PipelineSettings, machines: Mapping[str, str], image: str | None = None
) -> list[dict[str, Any]]:
    """A ``WorkerPoolSpec`` for each kind of process, in Vertex AI's order.

    Args:
        settings: the topology, and what the Trainer's step gets. ``cpu`` and ``memory`` name no
            machine type, and say nothing here.
        machines: machine types by kind of process (:data:`POOLS`); of an empty name: all others'.
        image: of all containers; default: the Trainer's, or ``kubeflow.image``.

    Raises:
        UserError: Vertex AI, or TFX's Trainer, has no way to do it.
    """
    unsupported.check_step(settings.kubeflow, "Trainer")
    pod = settings.kubeflow.step("Trainer")
    counts = _counts(roles.jobs(settings.parallel))
    _check(settings, counts, machines)
    return [
        {
            "machine_spec": _machine(pod, kind, machines.get(kind) or machines.get("")),
            "replica_count": count,
            "container_spec": {
                "image_uri": image or pod.image or settings.kubeflow.image,
                **pods.present("env", [{"name": k, "value": v} for k, v in pod.env.items()]),
            },
        }
        for kind, count in counts.items()
    ]


def _counts(processes: dict[str, int]) -> dict[str, int]:
    """Of each pool; without a chief, worker 0 is what Vertex AI makes one of."""
    if not processes:
        return {"chief": 1}
    if "chief" in processes:
        return processes
    workers = {"worker": processes["worker"] - 1}
    return {"chief": 1, **workers, **{k: n for k, n in processes.items() if k != "worker"}}


def _check(settings: PipelineSettings, counts: dict[str, int], machines: Mapping[str, str]) -> None:
    before = POOLS[: len(counts)]
    if tuple(counts) != before:
        raise UserError(
            f"parallel.evaluator: true: TFX's Trainer gives a container to the pools that this "
            f"topology leaves empty ({', '.join(k for k in POOLS if k not in counts)}), and Vertex "
            "AI no machine; use parallel.evaluator: false, or parallel.strategy: parameter_server."
        )
    if settings.parallel.launcher not in ("auto", "in_process"):
        raise UserError(
            f"parallel.launcher: {settings.parallel.launcher}: Vertex AI starts the processes "
            "itself; use parallel.launcher: auto."
        )
    if unknown := sorted(set(machines) - {"", *counts}):
        raise UserError(
            f"--machine-type {unknown[0]}={machines[unknown[0]]}: this topology has no such "
            f"processes; there are {', '.join(counts)}."
        )


def _machine(pod: PodSettings, kind: str, machine: str | None) -> dict[str, Any]:
    if not machine:
        raise UserError(
            f"--machine-type: none for the {kind}: cpu and memory name no machine of Vertex AI; "
            f"use one such as --machine-type n1-standard-8, or {kind}=n1-standard-8."
        )
    gpus = int(pods.resources(pod, kind).get("limits", {}).get(pod.gpu_resource, 0))
    if machine.startswith(_WITH_GPUS) and gpus != pod.gpus:
        has = f"{gpus} of the {pod.gpus}" if gpus else "none of the"
        raise UserError(
            f"--machine-type {machine}: has a fixed number of GPUs, and the {kind} uses {has} "
            f"GPUs; add another for it, such as --machine-type {kind}=n1-standard-8."
        )
    accelerators = {"accelerator_type": pod.gpu_resource, "accelerator_count": gpus}
    return {"machine_type": machine, **(accelerators if gpus else {})}
