"""``parallel.strategy: auto``: the topology that replaces it before a training."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from pydantic import ValidationError

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.parallel.topology import available_devices, configure_devices
from stagecraft.trainer_module.planning.accelerators import ACCELERATORS, Accelerator
from stagecraft.trainer_module.planning.cost_model import Degrees
from stagecraft.trainer_module.planning.model_pieces import ModelPieces, prepare
from stagecraft.trainer_module.planning.search.result import SearchResult, sentence
from stagecraft.trainer_module.planning.search.search import Search, candidates, settings_with
from stagecraft.trainer_module.planning.search.space import Space
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

_log = logging.getLogger(__name__)


class Resolved(NamedTuple):
    """Settings with a topology, and the search that found it."""

    settings: TrainingSettings
    found: SearchResult | None
    """The search; None: the settings name the strategy, or a checkpoint had the topology."""


def resolved(
    settings: TrainingSettings,
    build_model: Callable[[], keras.Model],
    earlier: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Resolved:
    """Replaces ``parallel.strategy: auto`` by the fastest topology on the devices of this machine.

    Call it before the devices are reserved. The topology has one worker, this process. If a name of
    :data:`ACCELERATORS` is in that of the first GPU, the search knows its rates and its memory;
    otherwise it counts operations, or measures with ``parallel.costs: measured``.

    Args:
        settings: of the training.
        build_model: gives the model.
        earlier: flat settings of a checkpoint. If the devices are there, and the settings allow it,
            a resumed training takes this topology, even if measured times would change it.
        on_progress: of :func:`search`.

    Raises:
        UserError: no topology is possible, or none fits into memory.
    """
    parallel = settings.parallel
    if not parallel.found.resolves:
        return Resolved(settings, None)
    with contextlib.suppress(UserError):  # too late: the training may start other processes
        configure_devices(parallel)
    devices = _devices(parallel)
    again = _as_before(settings, earlier or {}, len(devices))
    if again is not None:
        _log.info(
            "parallel.strategy: auto takes the topology of the checkpoint: %s",
            Degrees.of(again.parallel),
        )
        return Resolved(again, None)
    chosen = search(
        build_model(),
        settings,
        hosts=1,
        devices=len(devices),
        device=devices[0],
        accelerator=present(devices[0]) if parallel.costs == "flops" else None,
        on_progress=on_progress,
    )
    _log.info("%s", sentence(chosen.found))
    return Resolved(chosen.settings, chosen.found)


def _devices(parallel: ParallelSettings) -> list[str]:
    """The devices to choose a topology for."""
    if parallel.device_names:
        return list(parallel.device_names)
    if parallel.virtual_devices:
        return [f"CPU:{index}" for index in range(parallel.virtual_devices)]
    return available_devices(parallel)


def _as_before(
    settings: TrainingSettings, earlier: Mapping[str, Any], devices: int
) -> TrainingSettings | None:
    """The settings with the degrees of a checkpoint; None: they do not fit."""
    names = Degrees._fields
    if not all(f"parallel_{name}" in earlier for name in names):
        return None
    before = Degrees(**{name: earlier[f"parallel_{name}"] for name in names})
    before = before._replace(remat=bool(before.remat))
    wanted, default = Degrees.of(settings.parallel), Degrees.of(type(settings.parallel)())
    kept = all(
        now in (was, free)
        for name, now, was, free in zip(names, wanted, before, default, strict=True)
        if name != "strategy"
    )
    if not kept or before.devices > devices or strategy.find(before.strategy).resolves:
        return None
    with contextlib.suppress(ValidationError):
        return settings_with(settings, before, keeps_cuts=settings.parallel.cuts != "auto")
    return None


def present(device: str) -> Accelerator | None:
    """The accelerator of a device of this machine; None: it is a CPU, or not known."""
    if not device.startswith("GPU"):
        return None
    gpus = tf.config.get_visible_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[int(device.partition(":")[2])])
    return named(details.get("device_name", ""))


def named(device_name: str) -> Accelerator | None:
    """The accelerator of a vendor's name, such as ``NVIDIA A100-SXM4-40GB``; None: not known."""
    words = set(re.split(r"[\s-]+", device_name.upper()))
    of_kind = [each for each in ACCELERATORS.values() if each.name.split("-")[0] in words]
    exact = [each for each in of_kind if each.name.split("-")[1] in words]
    if len(exact) == 1 or len(of_kind) == 1:
        return (exact or of_kind)[0]
    return None


class Chosen(NamedTuple):
    """The result of a search for a model."""

    found: SearchResult
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
        model: may be :mod:`blank <stagecraft.trainer_module.models.blank>` unless
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
    found = SearchResult(
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


def _nothing(prepared: ModelPieces, devices: int, too_large: int) -> UserError:
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
