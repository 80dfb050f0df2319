"""What shards divide of the costs of a model's parts, and what they send each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models.layers.random_state import random_scope
from stagecraft.trainer_module.models.stages import blank, graph_operations, inputs
from stagecraft.trainer_module.models.stages.costs import StageCost
from stagecraft.trainer_module.models.stages.shards import group as groups
from stagecraft.trainer_module.models.stages.shards.group import ALL_SHARDS, ONE_SHARD, Traced
from stagecraft.trainer_module.models.stages.shards.model_shards import ModelShards


def with_shards(
    found: Sequence[StageCost], pieces: Sequence[keras.Model], model: keras.Model, count: int
) -> list[StageCost]:
    """The costs of consecutive pieces of a model, with what shards divide of them.

    The pieces are traced as one model, because a pair of divided layers may be in two pieces.

    Args:
        found: the costs of each piece, without shards.
        pieces: of the model, which is built.
        count: number of shards.

    Raises:
        SettingError: as :class:`ModelShards`.
    """
    group, flops = _Counting(count), []

    def trace(shards: ModelShards) -> None:
        def call(hidden: Nest) -> Nest:
            step, rows = tf.constant(0, tf.int64), tf.range(1, dtype=tf.int64)
            graph, before = tf.compat.v1.get_default_graph(), 0
            for piece in pieces:
                group.begin()
                with groups.active(group), random_scope(step, rows), shards.dividing(piece, {}):
                    hidden = piece(hidden, training=False)
                every = graph.get_operations()
                flops.append(_of_shards(every[before:], count))
                before = len(every)
            return hidden

        variables = {id(each): each for piece in pieces for each in piece.variables}
        specs = inputs.specs(inputs.of(pieces[0]), 1)
        blank.trace(list(variables.values()), call, specs)

    splits = ModelShards([model], count, trace).splits
    result = []
    for cost, piece, own, kept, sent in zip(
        found, pieces, flops, group.kept, group.sent, strict=True
    ):
        divided = [v for v in piece.variables if id(v) in splits]
        result.append(
            dataclasses.replace(
                cost,
                split_parameters=_count(divided),
                split_trainable=_count([v for v in divided if v.trainable]),
                split_flops=min(cost.flops, own),
                split_activation_bytes=min(cost.activation_bytes, kept),
                most_shards=min((sum(splits[id(v)].sizes) for v in divided), default=None),
                shard_bytes=sent,
            )
        )
    return result


def _of_shards(ops: Sequence[tf.Operation], count: int) -> int:
    """Floating-point operations of all shards."""
    one, each = (
        graph_operations.flops(op for op in ops if name in op.name)
        for name in (ONE_SHARD, ALL_SHARDS)
    )
    return one + count * each


class _Counting(Traced):
    """Shards of one device that count, for each piece, what would go between devices."""

    def __init__(self, count: int):
        super().__init__(count)
        self.kept: list[int] = []
        """Bytes of divided tensors."""
        self.sent: list[int] = []
        """Bytes to each other shard, and from it."""
        self._copied: dict[int, Any] = {}
        self._joined: dict[int, tuple[int, int]] = {}
        """Id of a divided tensor whose pieces no layer has taken -> its piece, its bytes."""

    def begin(self) -> None:
        """Begins a piece."""
        self.kept.append(0)
        self.sent.append(0)

    def copies(self, tensor: Any) -> list[tf.Tensor]:
        if id(tensor) not in self._copied:
            self.sent[-1] += _bytes(tensor)
            self._copied[id(tensor)] = tensor  # whose id no other tensor has from now on
        return super().copies(tensor)

    def slices(self, tensor: Any, sizes: Sequence[int]) -> list[tf.Tensor]:
        if self.pieces(tensor) is None:
            self.sent[-1] += _bytes(tensor) // self.count
        return super().slices(tensor, sizes)

    def total(self, pieces: Sequence[tf.Tensor]) -> tf.Tensor:
        self.sent[-1] += _bytes(pieces[0])
        return super().total(pieces)

    def join(self, pieces: Sequence[tf.Tensor]) -> tf.Tensor:
        whole = super().join(pieces)
        size = _bytes(whole)
        self.kept[-1] += size
        # Until a layer takes the pieces, the first device joins them.
        self.sent[-1] += size // self.count
        self._joined[id(whole)] = len(self.sent) - 1, size // self.count
        return whole

    def pieces(self, tensor: Any) -> list[tf.Tensor] | None:
        found = super().pieces(tensor)
        if id(tensor) in self._joined:
            piece, size = self._joined.pop(id(tensor))
            self.sent[piece] -= size
        return found


def _count(variables: Sequence[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def _bytes(tensor: Any) -> int:
    return graph_operations.elements(tensor.shape) * int(tensor.dtype.size)
