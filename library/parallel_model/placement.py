"""Which stage computes which layers of a model, and holds their variables.

A *unit* is a layer that runs on one device as a whole. Units are the layers of the model; of a
layer that is a model itself, or is larger than a stage, the layers inside. So a model needs no
graph to be placed: what connects the units runs where it is. A functional model, or one inside of
the model, has *views* as well: one for each stage, so that one call computes the whole stage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.pipeline_parallel.partition import balance
from stagecraft.trainer_module.settings import ParallelSettings

_log = logging.getLogger(__name__)


class Placement:
    """Units of a model, in the order of their calls, and the stage of each."""

    def __init__(self, model: Any, parallel: ParallelSettings):
        """Divides the units into stages of about equal numbers of parameters.

        Raises:
            SettingError: ``parallel.cuts`` names no units.
        """
        self.units, opened = _units(model, parallel.model_parts)
        opened = opened or [model] * parallel.remat
        self.stages = _stages(model, self.units, parallel)
        """Of each unit."""
        self.stage_of: dict[int, int] = {}
        """Id of a variable -> stage; a variable of several stages is in the first."""
        placed = [(each, _views(each, self.units, self.stages, parallel.remat)) for each in opened]
        self.views = [(each, views) for each, views in placed if views]
        """A model, and its parts that a stage computes in a row, as models, each with its stage.
        With remat, a part is a segment of a stage. The units of other models are called one by
        one."""
        for unit, stage in zip(self.units, self.stages, strict=True):
            for variable in getattr(unit, "variables", ()):
                self.stage_of.setdefault(id(variable), stage)


def _units(model: Any, parts: int) -> tuple[list[Any], list[Any]]:
    """The units, and the layers that have units inside."""
    found = _inner(model) or [model]
    if parts == 1 or found == [model]:
        return found, []
    outer = [model]
    while True:
        sizes = [_size(unit) for unit in found]
        most = sum(sizes) / parts
        opened = next(
            (
                place
                for place, unit in enumerate(found)
                if _inner(unit)
                and (isinstance(unit, keras.Model) or len(found) < parts)
                and (sizes[place] > most / 2 or len(found) < parts)
            ),
            None,
        )
        if opened is None:
            return found, outer
        outer.append(found[opened])
        found = _unique([*found[:opened], *_inner(found[opened]), *found[opened + 1 :]])


def _inner(layer: Any) -> list[Any]:
    """The layers inside a layer that compute something, and operations of a graph, in order."""
    if isinstance(layer, keras.Sequential):
        children = layer.layers
    elif isinstance(layer, keras.Model) and not model_graph.obstacle(layer):
        children = [node.operation for node in model_graph.computed(layer)]
    elif isinstance(layer, keras.Layer):
        children = layer._flatten_layers(include_self=False, recursive=False)
    else:
        return []
    return _unique(each for each in children if not isinstance(each, keras.layers.InputLayer))


def _unique(units: Iterable[Any]) -> list[Any]:
    """Each once: a layer may be called in several places, and have inner layers that are units."""
    return [*{id(unit): unit for unit in units}.values()]


def _size(unit: Any) -> int:
    return sum(variable.shape.num_elements() for variable in getattr(unit, "variables", ()))


def _stages(model: Any, units: Sequence[Any], parallel: ParallelSettings) -> list[int]:
    parts = parallel.model_parts
    if parallel.cut_names:
        return list(_named(units, parallel))
    if len(units) < parts:
        _log.warning(
            "%s has %d layers, so %d of %d stages have nothing to do",
            model.name, len(units), parts - len(units), parts,
        )  # fmt: skip
    starts = balance([(1 + _size(unit),) for unit in units], min(parts, len(units))) or []
    return [
        sum(start <= place for start in starts) % parallel.stages for place in range(len(units))
    ]


def _views(
    model: Any, units: Sequence[Any], stages: Sequence[int], remat: bool
) -> list[tuple[keras.Model, int]]:
    # The graph of a Sequential may change.
    if isinstance(model, keras.Sequential) or not isinstance(model, keras.Model):
        return []
    if model_graph.obstacle(model):
        return []
    own = [id(node.operation) for node in model_graph.computed(model)]
    places = {id(unit): place for place, unit in enumerate(units)}
    first = places.get(own[0]) if own else None
    if first is None or [*map(id, units[first : first + len(own)])] != own:
        return []
    inside = range(first, first + len(own))
    last = [place for place in inside[:-1] if stages[place] != stages[place + 1]]
    try:
        ends = model_graph.last_layers(model, [units[place].name for place in last])
        legal = {point.layer for point in partition.cut_points(model)}
    except Exception:  # of a layer that cannot compute with made-up sizes
        return []
    if not legal.issuperset(ends):
        return []
    models = partition.split(model, ends)
    of_models = [stages[first], *(stages[place + 1] for place in last)]
    return [
        (part, stage)
        for each, stage in zip(models, of_models, strict=True)
        for part in (partition.segments(each) if remat else [each])
    ]


def _named(units: Sequence[Any], parallel: ParallelSettings) -> Iterator[int]:
    names = [unit.name for unit in units]
    legal = names[:-1]  # nothing comes after the last one
    for name in parallel.cut_names:
        if name not in legal:
            raise SettingError(
                "parallel.cuts", name, "is no layer that ends a stage", ", ".join(legal)
            )
    order = tuple(sorted(set(parallel.cut_names), key=legal.index))
    if parallel.cut_names != order:
        problem = "must name each layer once, in the order of computation"
        raise SettingError("parallel.cuts", parallel.cut_names, problem, ",".join(order))
    part = 0
    for name in names:
        yield part % parallel.stages
        part += name in parallel.cut_names


def normalizations(model: Any) -> list[tuple[str, Any]]:
    """Layers that compute with statistics of the batch, and their paths."""
    layers = [("", model), *walk(model)]
    return [pair for pair in layers if isinstance(pair[1], keras.layers.BatchNormalization)]
