"""The fastest topologies for a model on some devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import keras

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.prepared import Prepared, prepare
from stagecraft.trainer_module.planning.search.found import Found
from stagecraft.trainer_module.planning.search.search import Search, candidates, settings_with
from stagecraft.trainer_module.planning.search.space import Space
from stagecraft.trainer_module.settings import TrainingSettings


class Chosen(NamedTuple):
    """The result of a search for a model."""

    found: Found
    settings: TrainingSettings
    """The given ones with the best topology."""


def search(
    model: keras.Model,
    settings: TrainingSettings,
    *,
    hosts: int,
    devices: int,
    device: str = "CPU:0",
    accelerator: Accelerator | None = None,
    network_gbit: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Chosen:
    """Finds the fastest topologies for a model and the batch size of its settings.

    Args:
        model: may be :mod:`blank <stagecraft.trainer_module.models.stages.blank>` unless
            ``parallel.costs`` is ``measured``.
        hosts: the most workers; each is a process on a host of its own.
        devices: of each host.
        device: on which ``parallel.costs: measured`` measures.
        accelerator: the devices, with peak rates and memory; None: not known.
        network_gbit: Gbit/s of each host to the others, in one direction; None: not known.
        on_progress: called with the number of parts or divisions done, and of all.

    Raises:
        UserError: no topology is possible, or none fits into memory.
    """
    prepared = prepare(
        model,
        settings,
        device,
        accelerator=accelerator,
        network_gbit=network_gbit,
        for_search=True,
        on_progress=on_progress,
    )
    space = Space(prepared.work, hosts=hosts, devices=devices)
    result = Search(prepared.work, space, prepared.named, on_progress).run()
    if not result.best:
        raise _nothing(prepared, hosts * devices, result.too_large)
    found = Found(
        candidates=candidates(prepared.work, result.best),
        devices=hosts * devices,
        batch_size=settings.train.batch_size,
        times=prepared.times,
        divisions=result.divisions,
        too_large=result.too_large,
        priced=result.priced,
    )
    keeps_cuts = prepared.named is not None
    best = settings_with(settings, result.best[0].degrees, keeps_cuts=keeps_cuts)
    return Chosen(found, TrainingSettings.model_validate(best.model_dump()))


def _nothing(prepared: Prepared, devices: int, too_large: int) -> UserError:
    """The error for settings that no topology fulfills."""
    if too_large and prepared.work.memory < math.inf:
        use = "more devices, a smaller train.batch_size, or parallel.precision: mixed_bfloat16"
        return UserError(
            f"{prepared.memory_source}: {prepared.work.memory / 1e6:,.0f} MB is too little for "
            f"every topology of {devices:,} devices; use {use}",
            setting=prepared.memory_source,
            value=prepared.work.memory / 1e6,
            suggestion=use,
        )
    use = "other values of the settings below parallel, or their defaults"
    return UserError(
        f"parallel.strategy: no topology of {devices:,} devices has all degrees that the settings "
        f"below parallel fix; use {use}",
        setting="parallel.strategy",
        value=prepared.work.settings.parallel.strategy,
        suggestion=use,
    )
