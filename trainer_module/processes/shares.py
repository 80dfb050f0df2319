"""Divides this host's cores and GPUs among processes, as environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.parallel.capabilities import capabilities
from stagecraft.trainer_module.parallel.roles import Role
from stagecraft.trainer_module.parallel.settings import ParallelSettings

THREADS = "TF_NUM_INTRAOP_THREADS"
"""TensorFlow's variable: threads that run one op."""


def environments(
    parallel: ParallelSettings, roles: Sequence[Role], *, cores: int, gpus: Sequence[str]
) -> list[Mapping[str, str | None]]:
    """The environment variables of each role, in order.

    Processes that compute gradients share the cores evenly, unless ``TF_NUM_INTRAOP_THREADS`` is
    set. Each gets as many of the ``gpus``, if there are any, as the topology says. The only process
    of a training has all of them.
    """
    if len(roles) == 1:
        return [{}]
    by_workers = any(role.job == "worker" for role in roles)
    computing = [role for role in roles if role.job == ("worker" if by_workers else "chief")]
    # auto chooses from all GPUs, and has one process besides an evaluator.
    resolves = capabilities(parallel.strategy).resolves
    each = len(gpus) if resolves else parallel.devices_per_worker
    needed = len(computing) * each
    if gpus and needed > len(gpus):
        raise SettingError(
            "parallel.workers",
            len(computing),
            f"with {each} devices each need {needed} GPUs, but this host has {len(gpus)}",
            f"parallel.workers: {max(1, len(gpus) // each)}, or parallel.virtual_devices: {each} "
            "for CPUs",
        )
    if gpus and parallel.device_names:
        raise SettingError(
            "parallel.devices",
            parallel.devices,
            "names GPUs, but several processes on this host must share its GPUs",
            "parallel.devices: auto, and set CUDA_VISIBLE_DEVICES to choose GPUs",
        )
    environments: list[Mapping[str, str | None]] = []
    for role in roles:
        own: dict[str, str | None] = {}
        if len(computing) > 1:
            own[THREADS] = os.environ.get(THREADS, str(max(1, cores // len(computing))))
        if gpus:
            own["CUDA_VISIBLE_DEVICES"] = "-1"
            if role in computing:
                first = computing.index(role) * each
                own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first : first + each])
        environments.append(own)
    return environments


def gpus(parallel: ParallelSettings) -> list[str]:
    """This host's GPUs that a training may use; none if the settings ask for CPUs."""
    import tensorflow as tf

    if parallel.virtual_devices or any(n.startswith("CPU") for n in parallel.device_names):
        return []
    count = len(tf.config.list_physical_devices("GPU"))
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (visible or [str(number) for number in range(count)])[:count]
