"""The whole model on each core of a TPU. Never run on one: no TPU was at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.parallel import tpu_system
from stagecraft.trainer_module.parallel.devices import Topology
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import Strategy


class Tpu(Strategy):
    """``tf.distribute.TPUStrategy``: the TPU's own interconnect adds up the gradients."""

    name = "tpu"
    description = "the whole model on each core of a TPU, all in step; never run on hardware"
    remote_devices = True

    def refuse(self, parallel: ParallelSettings) -> None:
        """Raises a SettingError for devices, precisions and XLA options that a TPU lacks."""
        if parallel.device_names:
            raise SettingError(
                "devices",
                parallel.devices,
                "is not for tpu, which takes all of its cores",
                "devices: auto",
            )
        if parallel.virtual_devices:
            raise SettingError(
                "virtual_devices",
                parallel.virtual_devices,
                "makes logical CPUs, and tpu trains on none",
                "virtual_devices: 0",
            )
        if parallel.precision in ("float64", "mixed_float16"):
            fits = "float32" if parallel.precision == "float64" else "mixed_bfloat16"
            raise SettingError(
                "precision", parallel.precision, "is not supported by tpu", f"precision: {fits}"
            )
        if parallel.jit:
            raise SettingError(
                "jit",
                "true",
                "is not needed: on tpu XLA always compiles the whole step",
                "jit: false",
            )

    def choose(self, parallel: ParallelSettings) -> Sequence[str]:
        """All cores."""
        cores = tpu_system.cores()
        if parallel.replicas != cores:
            raise SettingError(
                "parallel.replicas",
                parallel.replicas,
                f"does not fit the TPU, which has {cores} cores, each of them a replica",
                f"parallel.replicas: {cores}",
            )
        return [f"TPU:{index}" for index in range(cores)]

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over all cores; untested on hardware."""
        import tensorflow as tf

        return tf.distribute.TPUStrategy(tpu_system.connect())


TPU = Tpu()
