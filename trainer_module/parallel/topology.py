"""Parallel settings and this machine: the devices that a training runs on, or a refusal.

A *replica* is a copy of the model that takes its part of every global batch, a *stage* a part of
the model, a *worker* a process; a *device* is what ops run on. TensorFlow is imported only inside
functions.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel.settings import ParallelSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """The devices that work together, and their parts."""

    strategy: str
    devices: tuple[str, ...]
    """This worker's, such as ``("GPU:0", "GPU:1")``: replica by replica, its stages in order, each
    with its shards."""
    stages: int = 1
    shards: int = 1
    workers: int = 1
    """Processes that train together, each with as many devices as this one."""
    worker: int = 0
    """This process's place among them; the chief is 0."""

    @property
    def found(self) -> Any:
        """The :class:`~stagecraft.trainer_module.parallel.strategy.Strategy`."""
        return registries.STRATEGIES.get(self.strategy)

    @property
    def replicas(self) -> int:
        """Copies of the model in this process."""
        return len(self.devices) // (self.stages * self.shards)

    @property
    def global_replicas(self) -> int:
        """Copies of the model in all processes."""
        return self.workers * self.replicas

    @property
    def rows(self) -> tuple[int, int]:
        """``(w, n)``: each global batch has n equal parts, of which this process takes the w-th."""
        return (self.worker, self.workers) if self.found.in_step else (0, 1)

    def device(self, replica: int, part: int, shard: int = 0) -> str:
        """The device of a part of the model of a replica of this worker, such as ``"GPU:1"``."""
        stage = replica * self.stages + part % self.stages
        return self.devices[stage * self.shards + shard]

    def fitting_batch(self, size: int) -> int:
        """The smallest batch, from ``size`` examples on, that every replica has a part of."""
        return -(-size // self.global_replicas) * self.global_replicas

    @property
    def on_gpus(self) -> bool:
        """Whether the devices are GPUs."""
        return self.devices[0].startswith("GPU")

    @property
    def on_cpus(self) -> bool:
        """Whether the devices are CPUs, which share the memory of the host."""
        return self.devices[0].startswith("CPU")


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
    members = parallel.found.cluster(parallel)
    devices = parallel.found.choose(parallel)
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
    for earlier in _resolved:
        if earlier != topology and topology.found.conflicts(topology, earlier):
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


def configure_devices(parallel: ParallelSettings) -> None:
    """Sets up this process's devices; call it before anything else uses TensorFlow.

    GPUs get their memory as it is needed, so that the pipeline's other steps find
    some; ``parallel.virtual_devices`` splits the CPU into that many logical devices, or
    leaves it as it is where it has more.

    Raises:
        UserError: TensorFlow has started in this process with fewer logical CPUs
            than ``parallel.virtual_devices``.
    """
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError):  # TensorFlow runs already: as it was set up then
            tf.config.experimental.set_memory_growth(gpu, True)

    wanted, found = parallel.virtual_devices, len(_devices("CPU"))
    if wanted <= found:
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(wanted)]
        )
    except RuntimeError:
        raise UserError(
            f"parallel.virtual_devices: {wanted}: TensorFlow has already started in this process "
            f"with {found} logical CPU devices; start a new process, and call "
            f"stagecraft.virtual_devices({wanted}) before anything else uses TensorFlow",
            setting="parallel.virtual_devices",
            value=wanted,
            suggestion=f"stagecraft.virtual_devices({wanted})",
        ) from None


def available_devices(parallel: ParallelSettings) -> list[str]:
    """Devices from which ``parallel.devices: auto`` chooses: GPUs if there are any, else CPUs."""
    return (not parallel.virtual_devices and _names("GPU")) or _names("CPU")


def _names(kind: str) -> list[str]:
    return [f"{kind}:{index}" for index in range(len(_devices(kind)))]


def _devices(kind: str) -> list[Any]:
    """The physical device behind each logical one, in order; does not start TensorFlow."""
    import tensorflow as tf

    return [
        device
        for device in tf.config.get_visible_devices(kind)
        for _ in tf.config.get_logical_device_configuration(device) or [None]
    ]


def choose_devices(parallel: ParallelSettings) -> Sequence[str]:
    """This process's devices, replica by replica, stages in order; does not start TensorFlow."""
    devices = _choose(parallel)
    if parallel.all_reduce == "nccl" and not all(name.startswith("GPU") for name in devices):
        raise SettingError(
            "parallel.all_reduce",
            "nccl",
            f"needs GPUs, but TensorFlow finds none on this machine ({', '.join(devices)})",
            "parallel.all_reduce: auto",
        )
    return devices


def _choose(parallel: ParallelSettings) -> Sequence[str]:
    needed, names = parallel.devices_per_worker, parallel.device_names
    cpus, gpus = _names("CPU"), _names("GPU")
    for name in names:
        if name not in cpus + gpus:
            raise SettingError(
                "parallel.devices",
                parallel.devices,
                f"this machine has no {name}",
                f"some of {', '.join(cpus + gpus)}, or parallel.devices: auto",
                shown=f"{','.join(names)}:",
            )
    if names:
        return names
    present = available_devices(parallel)
    if parallel.found.takes_all_gpus and not gpus:
        present = present[:1]  # TensorFlow takes all of a worker's GPUs, or one CPU
    if needed > len(present):
        raise _too_few(parallel, present)
    return present[:needed]


def _too_few(parallel: ParallelSettings, present: Sequence[str]) -> SettingError:
    needed, count = parallel.devices_per_worker, len(present)
    each = needed // parallel.replicas
    uses = []
    if count >= each:
        uses.append(f"parallel.replicas: {count // each}")
    if parallel.found.takes_all_gpus:
        workers = parallel.workers * parallel.replicas
        uses.append(f"parallel.replicas: 1 with parallel.workers: {workers}")
    else:
        uses.append(f"parallel.virtual_devices: {needed} for logical CPU devices")
    return SettingError(
        "parallel.replicas",
        parallel.replicas,
        f"{_more_degrees(parallel)}needs {needed} devices, but this machine has {count} "
        f"({', '.join(present)})",
        ", or ".join(dict.fromkeys(uses)),
    )


def _more_degrees(parallel: ParallelSettings) -> str:
    degrees = {"stages": parallel.stages, "shards": parallel.shards}
    return "".join(f"× parallel.{name}: {n} " for name, n in degrees.items() if n > 1)


def show_only(devices: Sequence[str]) -> Sequence[str]:
    """Hides all GPUs but those named; the names of those that are left, numbered anew."""
    import tensorflow as tf

    gpus = _devices("GPU")
    shown = [gpus[int(name.partition(":")[2])] for name in devices if name.startswith("GPU")]
    try:
        tf.config.set_visible_devices([gpu for gpu in gpus if gpu in shown], "GPU")
    except RuntimeError:
        raise UserError(
            f"parallel.devices: a worker would take all {len(gpus)} GPUs, not "
            f"{', '.join(devices)} alone, because TensorFlow has already started in this process; "
            "start a new process"
        ) from None
    return [f"GPU:{index}" for index in range(len(shown))] if shown else devices


@contextlib.contextmanager
def connecting() -> Iterator[None]:
    """Explains TensorFlow's refusal to connect workers in a process that has started it."""
    try:
        yield
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise UserError(
            "parallel.workers: TensorFlow started in this process before the workers connected, "
            "because a module creates a tensor or a Keras object (an optimizer, a metric, a model) "
            "when it is imported, or because a loss or metric function uses a tensor from outside; "
            "create it in a function",
            setting="parallel.workers",
            suggestion="create the object in a function",
        ) from error
