"""The whole model on each device of several processes; gradients are added up in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.parallel import cluster, topology as topologies
from stagecraft.trainer_module.parallel.cluster import Cluster
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class MultiWorkerMirrored(Strategy):
    """``tf.distribute.MultiWorkerMirroredStrategy``: CollectiveReduceV2 between the workers."""

    name = "multi_worker_mirrored"
    description = "synchronous replicas of the whole model on the devices of several processes"
    all_reduces = ("auto", "ring", "nccl")
    several_processes = True
    takes_all_gpus = True
    divides_calls = True
    parity_cases = {"workers-2": ParityCase("two synchronous processes", {"workers": 2})}

    def device_groups(self, parallel: ParallelSettings) -> Sequence[Sequence[str]]:
        """All devices."""
        return (parallel.device_names,)

    def refuse(self, parallel: ParallelSettings) -> None:
        """Raises a SettingError for several replicas on CPUs."""
        cpus = any(name.startswith("CPU") for name in parallel.device_names)
        if parallel.replicas > 1 and (parallel.virtual_devices or cpus):
            # collective_all_reduce_strategy.py, _initialize_local_devices: all GPUs, or one CPU.
            raise SettingError(
                "parallel.replicas",
                parallel.replicas,
                "needs GPUs: a worker of multi_worker_mirrored uses all of its GPUs, or one CPU",
                "parallel.replicas: 1 with parallel.workers: "
                f"{parallel.workers * parallel.replicas}"
                + (" and parallel.devices: CPU:0" if parallel.device_names else ""),
            )

    def cluster(self, parallel: ParallelSettings) -> Cluster | None:
        """The workers; None: ``TF_CONFIG`` is unset, and there is one worker."""
        return cluster.in_step(parallel)

    def conflicts(self, topology: Topology, earlier: Topology) -> bool:
        """Collectives are set up first, and each such strategy numbers its groups from 1."""
        return topology.workers > 1 or earlier.strategy == self.name

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over the devices of all workers."""
        import tensorflow as tf

        implementation = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=implementation[parallel.all_reduce.upper()]
        )
        with topologies.connecting():
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


MULTI_WORKER_MIRRORED = MultiWorkerMirrored()
