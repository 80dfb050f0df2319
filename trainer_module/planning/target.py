"""The devices to plan for: those of this machine, or published ones that it may lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.planning import accelerators
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

if TYPE_CHECKING:
    import keras


class Target:
    """The devices of each worker. Imports no TensorFlow before :meth:`plan`."""

    def __init__(self, named: str | None, prefix: str):
        """Parses a number of published devices.

        Args:
            named: such as ``4xA100-40GB``; None: the devices of this machine, with operations in
                place of seconds.
            prefix: of ``named`` in errors, such as ``"--devices "``.

        Raises:
            SettingError: the text is none.
        """
        self._prefix, self._setting = prefix, prefix.rstrip(" =")
        self._count, self._accelerator = 0, None
        if named is not None:
            self._count, self._accelerator = accelerators.parse(named, self._setting)

    def check(self, parallel: ParallelSettings) -> None:
        """Refuses a topology with more devices than are named.

        Raises:
            UserError: as said.
        """
        needed = 0 if parallel.found.resolves else parallel.devices_per_worker
        if self._accelerator is not None and needed > self._count:
            name = self._accelerator.name
            raise UserError(
                f"{self._setting}: {self._count}x{name} are fewer than the {needed} devices that "
                f"each worker needs (parallel.replicas: {parallel.replicas} × parallel.stages: "
                f"{parallel.stages} × parallel.shards: {parallel.shards}); use "
                f"{self._prefix}{needed}x{name}",
                setting=self._setting,
                value=self._count,
                suggestion=f"{self._prefix}{needed}x{name}",
            )

    def plan(
        self,
        build: Callable[[], keras.Model],
        settings: TrainingSettings,
        *,
        network_gbit: float = accelerators.NETWORK_GBIT,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Plan:
        """Cuts a model into the stages of a topology, and estimates a step of its training.

        Args:
            build: gives the model, after the logical devices of the settings are there.
            settings: of the training; with ``parallel.strategy: auto``, a search chooses.
            network_gbit: Gbit/s between the hosts of workers, in one direction.
            on_progress: called with the number of parts measured, and of all.

        Raises:
            UserError: the model cannot be cut so, the devices are too few, or a stage does not fit
                into the memory of its device.
        """
        from stagecraft.trainer_module.parallel import topology
        from stagecraft.trainer_module.parallel.topology import (
            available_devices,
            choose_devices,
            configure_devices,
        )
        from stagecraft.trainer_module.planning import planner
        from stagecraft.trainer_module.planning.search import automatic

        parallel = settings.parallel
        self.check(parallel)
        resolves = parallel.found.resolves
        more: dict[str, Any] = {"on_progress": on_progress, "accelerator": self._accelerator}
        if self._accelerator is not None:
            available = [f"{self._accelerator.name}:{index}" for index in range(self._count)]
            model = build()
            if resolves:
                chosen = automatic.search(model, settings, hosts=1, devices=self._count, **more)
                parallel = chosen.settings.parallel
            devices = available[: parallel.devices_per_worker]
        elif parallel.found.remote_devices:
            devices = list(topology.resolve(parallel).devices)
            model = build()
        else:
            configure_devices(parallel)
            if not resolves:
                devices = list(choose_devices(parallel))
            model = build()
            if resolves:
                found = automatic.resolved(settings, lambda: model, on_progress=on_progress)
                parallel = found.settings.parallel
                devices = list(choose_devices(parallel))
        if self._accelerator is None:
            available = list(parallel.device_names) or available_devices(parallel)
        return planner.make_plan(
            model,
            settings.model_copy(update={"parallel": parallel}),
            devices,
            available=len(available),
            network_gbit=network_gbit,
            **more,
        )
