"""The pieces between all cut points of a model, with the times of each, ready for predictions.

Times have one of three sources: measurements on the device; an accelerator's published rates of
operations and memory; or numbers of floating-point operations. The last compare parts of a model,
but give no seconds, and ignore copies between devices.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras

from stagecraft.common import garbage_collection
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models import costs, model_graph
from stagecraft.trainer_module.models.costs import StageCost, Times
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.planning import (
    collective_costs,
    cost_model,
    device_times,
    measure,
)
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.device_times import Measured, MeasuredTimes, PieceTimes
from stagecraft.trainer_module.planning.range_costs import backward
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.tensor_parallel.costs import with_shards

_log = logging.getLogger(__name__)

_OPERATIONS_PER_BYTE = 32
"""Operations that take as long as a byte between shards, where no rates are known: an A100 computes
19.5 Tflop/s in float32, and its NVLink moves 600 GB/s."""

_BYTES_PER_SECOND = 1e10
"""Between shards where times are measured: the order of a copy in a host's memory."""

_SMALL_PARTS = 16
"""A search also measures in a microbatch of this part of the batch, as a pipeline of a few devices
has them."""


class ModelPieces(NamedTuple):
    """The pieces of a model, ready for predictions."""

    names: list[str]
    """Cut points between the pieces."""
    named: list[int] | None
    """First pieces of the stages that ``parallel.cuts`` names; None: they are to be chosen."""
    work: cost_model.CostModel
    times: str
    """Origin of the times: ``measured``, ``peak`` or ``flops``."""
    memory_source: str
    """The limit of the memory: a setting, or a device."""


def prepare(
    model: keras.Model,
    settings: TrainingSettings,
    device: str,
    *,
    accelerator: Accelerator | None = None,
    network_gbit: float | None = None,
    for_search: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> ModelPieces:
    """Splits a model at its cut points, and finds the costs and times of the pieces.

    Args:
        device: on which pieces are measured.
        accelerator: as in ``make_plan``, as ``network_gbit`` and ``on_progress``.
        for_search: whether to merge pieces if they are very many.

    Raises:
        UserError: the cuts that the settings name are not possible.
    """
    settings = settings.definite
    parallel = settings.parallel
    if model_graph.are_open(model_graph.sized(model)):
        text = "%s leaves sizes of its inputs open; its costs are those of sizes of 1"
        _log.warning(text, model.name)
    parts = parallel.model_parts
    named = parallel.cut_names
    chosen = partition.named_cuts(model, parts, named) if named else []
    *few, last = partition.all_cuts(model, parts, chosen, parallel.virtual_stages)
    for names in [*(names for names in few if len(names) + 1 >= max(2, parts)), last]:
        with garbage_collection.paused():
            pieces = partition.split(model, names)
        if names is last:
            break
        found = costs.stage_costs(pieces, model_graph.sized(model), keeps=False)
        if partition.is_even([cost.flops for cost in found], max(2, parts)):
            break
    stage_costs = costs.stage_costs(pieces, model_graph.sized(model))
    stage_costs = _with_shards(stage_costs, pieces, model, parallel.shards, for_search=for_search)
    factors = backward(stage_costs, remat=parallel.remat)
    small: Measured | None = None
    unit, links = "flops", collective_costs.Links(shards=1 / _OPERATIONS_PER_BYTE)
    if accelerator:
        unit, links = "peak", collective_costs.links(accelerator.link_gb_per_second, network_gbit)
        times = [
            device_times.times(
                cost, accelerator, parallel.precision, factor, settings.train.batch_size
            )
            for cost, factor in zip(stage_costs, factors, strict=True)
        ]
    elif parallel.costs == "measured":
        unit, links = "measured", collective_costs.links(None, network_gbit)
        links = links._replace(shards=_BYTES_PER_SECOND)
        small, times = _measured(
            pieces, stage_costs, settings, device, for_search=for_search, on_progress=on_progress
        )
    else:
        times = [
            Times(cost.flops, factor * cost.flops)
            for cost, factor in zip(stage_costs, factors, strict=True)
        ]
    memory, source = parallel.memory_mb * 1e6 or math.inf, "parallel.memory_mb"
    if accelerator and not parallel.memory_mb:
        memory, source = accelerator.memory_gb * 1e9, accelerator.name
    starts = [names.index(name) + 1 for name in chosen] if named else None
    if for_search:
        kept = kept_cuts(stage_costs, starts or ())
        if small:
            small = small._replace(times=merged(stage_costs, small.times, kept)[1])
        stage_costs, times = merged(stage_costs, times, kept)
        starts = starts and [kept.index(start) + 1 for start in starts]
        names = [names[start - 1] for start in kept]
    times_at: PieceTimes | MeasuredTimes | None = None
    if small:
        large = Measured(_examples(settings), times)
        times_at = MeasuredTimes(stage_costs, small, large, remat=parallel.remat)
    if accelerator:
        times_at = PieceTimes(stage_costs, accelerator, parallel.precision)
    rate = device_times.bytes_per_second(accelerator) if accelerator else math.inf
    planned = cost_model.CostModel(stage_costs, times, settings, links, memory, times_at, rate)
    return ModelPieces(names, starts, planned, unit, source)


def _measured(
    pieces: Sequence[keras.Model],
    found: Sequence[StageCost],
    settings: TrainingSettings,
    device: str,
    *,
    for_search: bool,
    on_progress: Callable[[int, int], None],
) -> tuple[Measured | None, list[Times]]:
    """Measured times, for a search those of few examples as well."""
    sizes = [_examples(settings)]
    if for_search and sizes[0] > 1:
        sizes.append(max(1, sizes[0] // _SMALL_PARTS))
    measured = []
    for number, size in enumerate(sizes):

        def progress(done: int, total: int, before: int = number) -> None:
            on_progress(before * total + done, len(sizes) * total)

        times = measure.piece_times(
            pieces,
            found,
            examples=size,
            device=device,
            jit=settings.parallel.jit,
            remat=settings.parallel.remat,
            on_progress=progress,
        )
        measured.append(Measured(size, times))
    return (measured[1] if len(measured) > 1 else None), list(measured[0].times)


def _examples(settings: TrainingSettings) -> int:
    """Of a microbatch that is measured."""
    return settings.train.batch_size // settings.parallel.parts


def _with_shards(
    found: list[StageCost],
    pieces: Sequence[keras.Model],
    model: keras.Model,
    count: int,
    *,
    for_search: bool,
) -> list[StageCost]:
    """The costs with what shards divide; a search wants to know it for any number of shards."""
    if count == 1 and not for_search:
        return found
    try:
        return with_shards(found, pieces, model, max(2, count))
    except SettingError:
        if count > 1:
            raise
        return found  # no layer can be divided: the search finds no use for shards


ENOUGH = 256
"""Pieces; predictions take time by the square of their number."""

_STRETCHES = 64
"""Parts of the model, with equally many pieces, each of which keeps a cut."""


def kept_cuts(pieces: Sequence[StageCost], named: Sequence[int] = ()) -> list[int]:
    """The first pieces of the larger pieces, but for the first: those after cheap cuts.

    All cuts, if there are few; otherwise those that the fewest tensors cross, and of these every
    n-th. Where there is none of them for long, as between the two sides of a U-Net, the cheapest
    ones stay. So do the cuts before the pieces ``named``. They are fewer than
    ``ENOUGH + 64``, without the named ones.
    """
    cuts = list(range(1, len(pieces)))
    if len(pieces) > ENOUGH:

        def crossing(cut: int) -> int:
            return pieces[cut - 1].output_tensors

        fewest = min(map(crossing, cuts))
        cheap = [cut for cut in cuts if crossing(cut) == fewest]
        step = -(-(len(cheap) + 1) // ENOUGH)
        kept = set(cheap[step - 1 :: step])
        size = -(-len(cuts) // _STRETCHES)
        stretches = [cuts[begin : begin + size] for begin in range(0, len(cuts), size)]
        kept |= {min(each, key=crossing) for each in stretches if kept.isdisjoint(each)}
        cuts = [*kept]
    return sorted({*cuts, *named})


def merged(
    pieces: Sequence[StageCost], times: Sequence[Times], cuts: Sequence[int]
) -> tuple[list[StageCost], list[Times]]:
    """The pieces between some of the cuts."""
    bounds = list(itertools.pairwise([0, *cuts, len(pieces)]))
    merged_times = [
        Times(sum(each.forward for each in times[a:b]), sum(each.backward for each in times[a:b]))
        for a, b in bounds
    ]
    return [_one(pieces[a:b]) for a, b in bounds], merged_times


def _one(pieces: Sequence[StageCost]) -> StageCost:
    if len(pieces) == 1:
        return pieces[0]
    tied = dict.fromkeys(weight for piece in pieces for weight in piece.tied)
    again = sum(
        weight.parameters * (sum(weight in piece.tied for piece in pieces) - 1) for weight in tied
    )
    again_trained = sum(
        weight.parameters * (sum(weight in piece.tied for piece in pieces) - 1)
        for weight in tied
        if weight.trained
    )
    added = {
        name: sum(getattr(piece, name) for piece in pieces)
        for name in (
            *("layers", "parameters", "trainable", "frozen", "flops", "activation_bytes"),
            *("split_parameters", "split_trainable", "split_flops", "split_activation_bytes"),
            "shard_bytes",
        )
    }
    added["parameters"] -= again
    added["trainable"] -= again_trained
    added["frozen"] -= again - again_trained  # the state of a layer is never tied
    limits = [piece.most_shards for piece in pieces if piece.most_shards is not None]
    first, last = pieces[0], pieces[-1]
    return dataclasses.replace(
        first,
        **added,
        most_shards=min(limits, default=None),
        last=last.last,
        output_bytes=last.output_bytes,
        output_tensors=last.output_tensors,
        tied=tuple(tied),
        whole=tuple(each for piece in pieces for each in piece.whole),
        operations=tuple(each for piece in pieces for each in piece.operations),
        kind=" ".join(piece.kind for piece in pieces),
    )
