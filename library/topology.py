"""The settings of a topology, as ``stagecraft.Parallel``, and logical devices for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.common.settings import readable
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.topology import configure_devices


class Parallel(ParallelSettings):
    """The topology of a training: the settings of ``parallel:``.

    Raises:
        UserError: a setting is invalid, or two of them exclude each other.
    """

    if not TYPE_CHECKING:  # mypy reads the fields

        def __init__(self, **settings: Any):
            with readable("parallel"):
                super().__init__(**settings)


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
