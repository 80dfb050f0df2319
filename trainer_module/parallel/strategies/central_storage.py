"""Replicas on the devices of one process; the host holds the variables and adds up gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class CentralStorage(Strategy):
    """``tf.distribute.experimental.CentralStorageStrategy``."""

    name = "central_storage"
    description = "synchronous replicas on the devices of one process, with variables on its CPU"
    divides_calls = True
    parity_cases = {
        "central_storage-2": ParityCase("two replicas, variables on the host", {"replicas": 2})
    }

    def homes(self, parallel: ParallelSettings) -> Sequence[str]:
        """The host."""
        return ["CPU:0"]

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over the devices."""
        import tensorflow as tf

        devices = list(topology.devices)
        return tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0")


CENTRAL_STORAGE = CentralStorage()
