"""Refuses shards that would not make the devices' share of a model smaller."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import keras

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models.layers.walk import walk

MOST = 0.5
"""Parameters of a layer that stays whole, at most, by those of the largest stage."""


def check(
    models: Sequence[keras.Model],
    count: int,
    divided: Collection[int],
    reasons: Mapping[str, str],
    allow_whole: bool = False,
) -> None:
    """Checks what is divided of each stage.

    Args:
        models: of the stages.
        count: number of shards.
        divided: ids of the divided variables.
        reasons: path of a layer that stays whole in spite of its rule -> why.
        allow_whole: accept large layers that stay whole.

    Raises:
        SettingError: no layer of the model is divided, or a layer that stays whole has most of the
            parameters of the largest stage. In a small stage, it takes no more memory than others.
    """
    if not divided:
        known = "; ".join(f"{path} {reason}" for path, reason in list(reasons.items())[:3])
        raise SettingError(
            "parallel.shards",
            count,
            "finds no layer to divide" + (f" ({known})" if known else ""),
            "parallel.shards: 1, with parallel.stages or parallel.replicas for the other devices",
        )
    if allow_whole:
        return
    largest = max(sum(math.prod(each.shape) for each in model.variables) for model in models)
    for model in models:
        for path, size in _whole(model, divided).items():
            if size <= MOST * largest:
                continue
            kind = type(_layer(model, path)).__name__
            reason = reasons.get(path, "has no rule for its type")
            raise SettingError(
                "parallel.shards",
                count,
                f"cannot divide the layer {path} ({kind}), which has {size / largest:.0%} of the "
                f"parameters of the largest stage and {reason}",
                "parallel.shards: 1, or a rule for the layer (stagecraft.shard_rules)",
            )


def _whole(model: keras.Model, divided: Collection[int]) -> dict[str, int]:
    """Path of each layer with variables of its own that stay whole -> their parameters."""
    owners: dict[int, tuple[str, int]] = {}
    for path, layer in walk(model):  # inner layers come last
        for variable in layer.variables:
            if id(variable) not in divided:
                owners[id(variable)] = path, math.prod(variable.shape)
    sizes: dict[str, int] = {}
    for path, size in owners.values():
        sizes[path] = sizes.get(path, 0) + size
    return sizes


def _layer(model: keras.Model, path: str) -> keras.Layer:
    return dict(walk(model))[path]
