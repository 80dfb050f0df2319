"""Logical CPU devices, for topologies of several devices on a machine without GPUs."""

from __future__ import annotations

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.parallel.devices import configure_devices
from stagecraft.trainer_module.settings import ParallelSettings


def virtual_devices(count: int) -> None:
    """Splits the CPU of this process into logical devices (``CPU:0``, ``CPU:1``, …).

    Call it before TensorFlow starts: before the first model, tensor or dataset. The devices stay
    for the rest of the process, and share its cores. If there are as many, nothing changes.

    Raises:
        UserError: TensorFlow has already started with fewer devices.
    """
    if not isinstance(count, int) or count < 1:
        raise SettingError("virtual_devices", count, "is not a positive whole number", "4")
    configure_devices(ParallelSettings(virtual_devices=count))
