"""What a strategy can do, as far as rules and topologies ask. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

from stagecraft.common.registry import Entry
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel.settings import ParallelSettings


class Capabilities(Entry):
    """Base of :class:`~stagecraft.trainer_module.parallel.strategy.Strategy`: its plain facts."""

    all_reduces: tuple[str, ...] = ("auto",)
    """Values of ``parallel.all_reduce`` that it supports."""

    several_processes = False
    """Whether ``parallel.workers`` may be more than 1."""

    in_step = True
    """Whether all workers take each step together, each with its part of the global batch."""

    cuts_model = False
    """Whether ``parallel.stages`` may be more than 1."""

    takes_all_gpus = False
    """Whether a worker takes all GPUs that it sees, or its first CPU."""

    remote_devices = False
    """Whether only a connection shows the devices; their graphs are compiled elsewhere."""

    resolves = False
    """Whether it stands for another strategy, which a search chooses for the model and devices."""

    keras_replicas = True
    """Whether Keras's layers see the replicas of a ``tf.distribute`` strategy."""

    divides_calls = False
    """Whether ``stagecraft.parallelize`` can divide a model's calls as the strategy would."""

    def homes(self, parallel: ParallelSettings) -> Sequence[str]:
        """Devices of the variables of ``stagecraft.parallelize``; (): those of the stages."""
        return ()

    def device_groups(self, parallel: ParallelSettings) -> Sequence[Sequence[str]]:
        """Named devices that add up gradients with each other, which takes one type of device."""
        return ()


def capabilities(strategy: str) -> Capabilities:
    """Those of the strategy of a name."""
    found: Capabilities = registries.STRATEGIES.get(strategy)
    return found
