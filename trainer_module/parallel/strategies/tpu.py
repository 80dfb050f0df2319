"""The whole model on each core of a TPU. Not tested on a TPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class Tpu(Strategy):
    """``tf.distribute.TPUStrategy``: the TPU's own interconnect adds up the gradients."""

    name = "tpu"
    description = "synchronous replicas on the cores of a TPU; never run on hardware"
    remote_devices = True

    def refuse(self, parallel: ParallelSettings) -> None:
        """Raises a SettingError for devices, precisions and XLA options that a TPU lacks."""
        if parallel.device_names:
            raise SettingError(
                "parallel.devices",
                parallel.devices,
                "is not supported by tpu, which uses all of its cores",
                "parallel.devices: auto",
            )
        if parallel.virtual_devices:
            raise SettingError(
                "parallel.virtual_devices",
                parallel.virtual_devices,
                "creates logical CPUs, but tpu does not train on CPUs",
                "parallel.virtual_devices: 0",
            )
        if parallel.precision in ("float64", "mixed_float16"):
            fits = "float32" if parallel.precision == "float64" else "mixed_bfloat16"
            raise SettingError(
                "parallel.precision",
                parallel.precision,
                "is not supported by tpu",
                f"parallel.precision: {fits}",
            )
        if parallel.jit:
            raise SettingError(
                "parallel.jit",
                "true",
                "is not needed: on TPUs, XLA always compiles the whole step",
                "parallel.jit: false",
            )

    def choose(self, parallel: ParallelSettings) -> Sequence[str]:
        """All cores."""
        cores = _cores()
        if parallel.replicas != cores:
            raise SettingError(
                "parallel.replicas",
                parallel.replicas,
                f"does not fit the TPU, which has {cores} cores with one replica each",
                f"parallel.replicas: {cores}",
            )
        return [f"TPU:{index}" for index in range(cores)]

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over all cores; untested on hardware."""
        import tensorflow as tf

        return tf.distribute.TPUStrategy(_connect())


TPU = Tpu()


@functools.cache
def _connect() -> Any:
    """Finds the TPU, connects to it and prepares it, once a process; untested on hardware.

    TensorFlow finds the address itself. It reads the environment variables
    ``KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS`` (set by GKE) and ``TPU_NAME`` (a name,
    ``grpc://host:port``, or ``local`` for a TPU in this machine), and then asks Google Cloud.
    """
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # No name: ValueError; not on Google Cloud: OSError; its client is missing: ImportError,
    # or RuntimeError; no answer: OpError.
    except (ValueError, OSError, ImportError, RuntimeError, tf.errors.OpError) as error:
        raise SettingError(
            "parallel.strategy",
            "tpu",
            f"needs a TPU, but TensorFlow cannot reach one ({error})",
            "parallel.strategy: mirrored, or set the environment variable TPU_NAME to the name or "
            "address of a TPU",
        ) from error
    return resolver


def _cores() -> int:
    """Number of the TPU's cores, each of them a replica."""
    import tensorflow as tf

    _connect()
    return len(tf.config.list_logical_devices("TPU"))
