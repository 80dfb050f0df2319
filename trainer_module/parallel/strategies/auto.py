"""The fastest topology on the devices of one process, which a search chooses before a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategies.one_device import simplest
from stagecraft.trainer_module.parallel.strategy import Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class Auto(Strategy):
    """Stands for ``one_device``, ``mirrored`` or ``grid``.

    :func:`~stagecraft.trainer_module.planning.search.automatic.resolved` replaces it in the
    settings. Degrees that the settings change from their defaults stay as they are.
    """

    name = "auto"
    description = "the fastest of one_device, mirrored and grid, as `stagecraft plan --search` says"
    all_reduces = ("auto", "nccl", "ring", "hierarchical_copy", "one_device")
    cuts_model = True
    resolves = True

    def choose(self, parallel: ParallelSettings) -> Sequence[str]:
        """Raises a SettingError: nothing has replaced ``auto``."""
        raise _unresolved()

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """Raises the SettingError of :meth:`choose`."""
        raise _unresolved()

    def alternative(self, replicas: int, stages: int) -> str | None:
        """The strategy of ``one_device.simplest``."""
        return simplest(replicas, stages)


def _unresolved() -> SettingError:
    return SettingError(
        "parallel.strategy",
        "auto",
        "has to be replaced by a topology for the model before devices are reserved",
        "a topology that stagecraft plan --search shows",
    )


AUTO = Auto()
