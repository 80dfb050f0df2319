"""From the setting to the ``tf.distribute`` strategy, and to how it sums gradients.

strategy                all_reduce             what sums the gradients
one_device              auto                   nothing has to
mirrored                auto                   NCCL on GPUs, else one device
                        nccl                   NcclAllReduce
                        hierarchical_copy      HierarchicalCopyAllReduce
                        one_device             ReductionToOneDevice
central_storage         auto                   the host, which holds the variables
multi_worker_mirrored   auto | ring | nccl     CollectiveReduceV2 between the workers
parameter_server        auto                   nothing: each worker updates by itself
tpu                     auto                   the TPU's own interconnect
grid                    auto | ring | nccl     CollectiveReduceV2 between the replicas of a
                                               stage, on all workers; see ``collectives.py``
"""

from __future__ import annotations

import tensorflow as tf

from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.parallel.tpu import tpu_strategy
from stagecraft.trainer_module.processes import loopback
from stagecraft.trainer_module.settings import ParallelSettings


def connect(topology: Topology, parallel: ParallelSettings) -> tf.distribute.Strategy | None:
    """The ``tf.distribute`` strategy over the devices; None for the grid, which has none.

    Call it before anything else uses TensorFlow: collectives and remote devices have to be set
    up first. Waits until the other processes of a cluster are there. Where all of them are on this
    machine, TensorFlow's server takes connections of this machine alone from then on.

    Raises:
        UserError: there is no TPU.
    """
    strategy = _connected(topology, parallel)
    if topology.strategy in ("grid", "multi_worker_mirrored", "parameter_server"):
        members = cluster.training(parallel)
        if members is not None:
            loopback.restrict(members.address)
    return strategy


def _connected(topology: Topology, parallel: ParallelSettings) -> tf.distribute.Strategy | None:
    devices = list(topology.devices)
    if topology.strategy == "grid":
        if topology.workers > 1:
            # For what making it starts: the server that collectives between processes go through.
            tf.distribute.MultiWorkerMirroredStrategy()
        return None
    if topology.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    if topology.strategy == "mirrored":
        return tf.distribute.MirroredStrategy(
            devices, cross_device_ops=_cross_device_ops(topology, parallel.all_reduce)
        )
    if topology.strategy == "central_storage":
        return tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0")
    if topology.strategy == "multi_worker_mirrored":
        implementation = tf.distribute.experimental.CommunicationImplementation
        hint = implementation[parallel.all_reduce.upper()]
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=hint
            )
        )
    if topology.strategy == "parameter_server":
        return tf.distribute.ParameterServerStrategy(cluster.resolver())
    return tpu_strategy()


def _cross_device_ops(topology: Topology, all_reduce: str) -> tf.distribute.CrossDeviceOps | None:
    if all_reduce == "auto":
        # Logical CPUs share their memory: adding up on one of them beats a ring between them.
        all_reduce = "nccl" if topology.on_gpus else "one_device"
    return {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "one_device": tf.distribute.ReductionToOneDevice,
    }[all_reduce]()
