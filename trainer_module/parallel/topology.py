"""Parallel settings + this machine -> the devices that a training runs on, or a refusal."""

from __future__ import annotations

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import cluster, strategy
from stagecraft.trainer_module.parallel.devices import Topology, configure_devices
from stagecraft.trainer_module.parallel.settings import ParallelSettings

_resolved: list[Topology] = []


def resolve(parallel: ParallelSettings) -> Topology:
    """The devices for ``parallel`` on this machine.

    GPUs where there are any, else CPUs; ``virtual_devices`` means CPUs in any case. It does
    not start TensorFlow (but for ``tpu``): strategies of several processes have to do that
    themselves. Where TensorFlow takes all GPUs that it sees, a worker's other ones are hidden, and
    ``devices`` are numbered without them.

    Raises:
        UserError: the machine has not the devices, ``TF_CONFIG`` does not fit, this process
            has had another topology that is in the way, or as :func:`configure_devices`.
    """
    import tensorflow as tf

    configure_devices(parallel)
    members = cluster.training(parallel)
    devices = strategy.find(parallel.strategy).choose(parallel)
    topology = Topology(
        strategy=parallel.strategy,
        devices=tuple(devices),
        stages=parallel.stages,
        shards=parallel.shards,
        workers=parallel.workers,
        worker=(members.worker or 0) if members else 0,
    )
    _refuse_a_second(topology)
    _resolved.append(topology)
    set_graph_options()
    if topology.on_gpus:  # CPU kernels give the same bits each time anyway
        tf.config.experimental.enable_op_determinism()
    return topology


def set_graph_options() -> None:
    """Makes TensorFlow compute each sum as the engine's code says it.

    Grappler regroups sums, and fuses ops, by what else is in the graph: roundings would depend on
    the topology, and on remat. Training is no slower without (benchmarks/RESULTS.md).
    """
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options(
        {"arithmetic_optimization": False, "remapping": False}
    )


def _refuse_a_second(topology: Topology) -> None:
    """Refuses a topology that cannot follow those that this process has had.

    Collectives between workers are set up before anything else uses TensorFlow, and every
    ``MultiWorkerMirroredStrategy`` numbers its groups from 1, as an earlier one did.
    """
    found = strategy.find(topology.strategy)
    for earlier in _resolved:
        if earlier != topology and found.conflicts(topology, earlier):
            raise UserError(
                f"parallel.strategy: {_described(topology)} cannot start in this process, because "
                f"TensorFlow keeps the collectives of {_described(earlier)}; start a new process",
                setting="parallel.strategy",
                value=topology.strategy,
            )


def _described(topology: Topology) -> str:
    """Strategy, workers and replicas, as ``grid (2 workers × 1 replica)``."""
    counts = (
        f"{count} {noun if count == 1 else noun + 's'}"
        for count, noun in ((topology.workers, "worker"), (topology.replicas, "replica"))
    )
    return f"{topology.strategy} ({' × '.join(counts)})"
