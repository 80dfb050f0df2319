"""Parallel settings + this machine -> the devices that a training runs on, or a refusal.

A *replica* is a copy of the model that takes its part of every global batch; a
*device* is what its ops run on. TensorFlow is imported only inside functions.
"""

from __future__ import annotations

import contextlib
import dataclasses

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.settings import ParallelSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """Which devices work together, and how."""

    strategy: str
    """One of ``stagecraft.trainer_module.settings.AVAILABLE_STRATEGIES``."""

    devices: tuple[str, ...]
    """One device per replica, such as ``("GPU:0", "GPU:1")``, in the order of replicas."""

    @property
    def replicas(self) -> int:
        """Copies of the model; the global batch is split evenly between them."""
        return len(self.devices)

    def fitting_batch(self, size: int) -> int:
        """The smallest batch, from ``size`` examples on, that every replica has a part of."""
        return -(-size // self.replicas) * self.replicas

    @property
    def on_gpus(self) -> bool:
        """Whether the devices are GPUs."""
        return self.devices[0].startswith("GPU")


def configure_devices(parallel: ParallelSettings) -> None:
    """Sets up this process's devices; call it before anything else uses TensorFlow.

    GPUs get their memory as it is needed, so that the pipeline's other steps find
    some; ``parallel.virtual_devices`` splits the CPU into that many logical devices.

    Raises:
        UserError: TensorFlow has started in this process with fewer logical CPUs
            than ``parallel.virtual_devices``.
    """
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError):  # TensorFlow runs already: as it was set up then
            tf.config.experimental.set_memory_growth(gpu, True)

    wanted = parallel.virtual_devices
    if not wanted:
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(wanted)]
        )
    except RuntimeError:
        found = len(tf.config.list_logical_devices("CPU"))
        if found < wanted:
            raise UserError(
                f"parallel.virtual_devices: {wanted} logical CPU devices were asked for, but "
                f"TensorFlow has already started in this process with {found}; start a new "
                "process, or call stagecraft.trainer_module.topology.configure_devices before "
                "anything else uses TensorFlow"
            ) from None


def resolve(parallel: ParallelSettings) -> Topology:
    """The devices for ``parallel`` on this machine; starts TensorFlow.

    GPUs where there are any, else CPUs; ``virtual_devices`` means CPUs in any case.

    Raises:
        UserError: more replicas than devices, or as :func:`configure_devices`.
    """
    import tensorflow as tf

    configure_devices(parallel)
    cpus = tf.config.list_logical_devices("CPU")
    gpus = [] if parallel.virtual_devices else tf.config.list_logical_devices("GPU")
    devices = [
        f"{device.device_type}:{index}" for index, device in enumerate(gpus if gpus else cpus)
    ]
    if parallel.replicas > len(devices):
        raise UserError(
            f"parallel.replicas: {parallel.replicas} needs as many devices, but this machine has "
            f"{len(devices)} ({', '.join(devices)}); use parallel.replicas: {len(devices)}, or "
            f"parallel.virtual_devices: {parallel.replicas} for logical CPU devices"
        )
    if gpus:  # CPU kernels give the same bits each time anyway
        tf.config.experimental.enable_op_determinism()
    return Topology(strategy=parallel.strategy, devices=tuple(devices[: parallel.replicas]))
