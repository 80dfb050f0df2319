"""All of the model on one device; what parity compares the other strategies with."""

from __future__ import annotations

from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class OneDevice(Strategy):
    """``tf.distribute.OneDeviceStrategy``."""

    name = "one_device"
    description = "the whole model on one device"
    is_reference = True
    divides_calls = True
    parity_cases = {
        "accumulate-4": ParityCase("one device, four accumulation steps", {"accumulate": 4})
    }

    def refuse(self, parallel: ParallelSettings) -> None:
        """Raises a SettingError for replicas."""
        if parallel.replicas > 1:
            raise SettingError(
                "parallel.replicas",
                parallel.replicas,
                "needs several devices, but one_device uses only one",
                "parallel.strategy: mirrored, or parallel.replicas: 1",
            )

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over the device."""
        import tensorflow as tf

        return tf.distribute.OneDeviceStrategy(topology.devices[0])

    def alternative(self, replicas: int, stages: int) -> str | None:
        """The strategy of :func:`simplest`."""
        return simplest(replicas, stages)


def simplest(replicas: int, stages: int) -> str:
    """The simplest strategy for these replicas and stages in one process."""
    if stages > 1:
        return "grid"
    return "mirrored" if replicas > 1 else "one_device"


ONE_DEVICE = OneDevice()
