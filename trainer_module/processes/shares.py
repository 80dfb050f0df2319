"""Each process's part of this host's cores and GPUs, as environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.parallel.settings import ParallelSettings

THREADS = "TF_NUM_INTRAOP_THREADS"
"""What TensorFlow reads: threads of a kernel."""


def environments(
    parallel: ParallelSettings,
    roles: Sequence[Role],
    *,
    cores: int,
    gpus: Sequence[str],
) -> list[Mapping[str, str | None]]:
    """One for each role, in order.

    Those that compute gradients share the cores evenly, unless ``TF_NUM_INTRAOP_THREADS`` is set,
    and have as many GPUs each as the topology says; what serves or evaluates gets none.

    Args:
        parallel: the topology.
        roles: its processes.
        cores: of this host.
        gpus: as ``CUDA_VISIBLE_DEVICES`` names them; none: it is left as it is.

    Raises:
        UserError: there are GPUs, and not enough for all workers.
    """
    by_workers = any(role.job == "worker" for role in roles)
    computing = [role for role in roles if role.job == ("worker" if by_workers else "chief")]
    each = parallel.replicas * parallel.stages
    needed = len(computing) * each
    if gpus and needed > len(gpus):
        raise UserError(
            f"parallel.workers: {len(computing)} with {each} devices each need {needed} GPUs, but "
            f"this host has {len(gpus)}; use parallel.workers: {max(1, len(gpus) // each)}, or "
            f"parallel.virtual_devices: {each} for CPUs"
        )
    if gpus and len(roles) > 1 and parallel.device_names:
        raise UserError(
            f"parallel.devices: {parallel.devices} names GPUs of a host, which its processes have "
            "to share; use parallel.devices: auto, and CUDA_VISIBLE_DEVICES for which of them"
        )
    found: list[Mapping[str, str | None]] = []
    for role in roles:
        own: dict[str, str | None] = {}
        if len(computing) > 1:
            own[THREADS] = os.environ.get(THREADS, str(max(1, cores // len(computing))))
        if gpus:
            own["CUDA_VISIBLE_DEVICES"] = "-1"
            if role in computing:
                first = computing.index(role) * each
                own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first : first + each])
        found.append(own)
    return found


def gpus(parallel: ParallelSettings) -> list[str]:
    """This host's GPUs that a training may use; none where it asks for CPUs."""
    import tensorflow as tf

    if parallel.virtual_devices or any(n.startswith("CPU") for n in parallel.device_names):
        return []
    count = len(tf.config.list_physical_devices("GPU"))
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (visible or [str(number) for number in range(count)])[:count]
