"""Divides the costs of a stage among its shards."""

from __future__ import annotations

import dataclasses

from stagecraft.trainer_module.models.stages.costs import StageCost


def divide(cost: StageCost, shards: int) -> StageCost:
    """The costs of one shard; whole where ``parallel.shards`` divides nothing.

    If no operation is marked as divided, the result knows none, but their sums.
    """
    if shards == 1:
        return cost
    rest = 1 - 1 / shards
    marked = any(each.split for each in cost.operations)
    return dataclasses.replace(
        cost,
        parameters=round(cost.parameters - rest * cost.split_parameters),
        trainable=round(cost.trainable - rest * cost.split_trainable),
        flops=round(cost.flops - rest * cost.split_flops),
        activation_bytes=round(cost.activation_bytes - rest * cost.split_activation_bytes),
        operations=tuple(each.divided(shards) for each in cost.operations) if marked else (),
        split_parameters=0,
        split_trainable=0,
        split_flops=0,
        split_activation_bytes=0,
    )
