"""The whole model on each device of one process; gradients are added up in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategies.one_device import simplest
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class Mirrored(Strategy):
    """``tf.distribute.MirroredStrategy``.

    ================= ==========================================
    all_reduce        who adds up the gradients
    ================= ==========================================
    auto              NCCL on GPUs, one device on CPUs
    nccl              NcclAllReduce
    hierarchical_copy HierarchicalCopyAllReduce
    one_device        ReductionToOneDevice
    ================= ==========================================
    """

    name = "mirrored"
    description = "synchronous replicas of the whole model on the devices of one process"
    divides_calls = True
    all_reduces = ("auto", "nccl", "hierarchical_copy", "one_device")
    parity_cases = {
        "mirrored-2": ParityCase("two replicas", {"replicas": 2}),
        "mirrored-4": ParityCase("four replicas", {"replicas": 4}),
    }

    def device_groups(self, parallel: ParallelSettings) -> Sequence[Sequence[str]]:
        """All devices."""
        return (parallel.device_names,)

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over the devices."""
        import tensorflow as tf

        all_reduce = parallel.all_reduce
        if all_reduce == "auto":
            # Logical CPUs share their memory: adding up on one of them beats a ring between them.
            all_reduce = "nccl" if topology.on_gpus else "one_device"
        cross_device_ops = {
            "nccl": tf.distribute.NcclAllReduce,
            "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
            "one_device": tf.distribute.ReductionToOneDevice,
        }[all_reduce]()
        return tf.distribute.MirroredStrategy(
            list(topology.devices), cross_device_ops=cross_device_ops
        )

    def alternative(self, replicas: int, stages: int) -> str | None:
        """The strategy of ``one_device.simplest``."""
        return simplest(replicas, stages)


MIRRORED = Mirrored()
