"""What shards divide of the costs of a model's pieces, and what they send each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models.layers.random_state import random_scope
from stagecraft.trainer_module.models.stages import blank, graph_operations, inputs
from stagecraft.trainer_module.models.stages.costs import StageCost
from stagecraft.trainer_module.models.stages.shards import group as groups
from stagecraft.trainer_module.models.stages.shards.call import Weights
from stagecraft.trainer_module.models.stages.shards.costs.counting import Counting
from stagecraft.trainer_module.models.stages.shards.costs.repeats import Repeats
from stagecraft.trainer_module.models.stages.shards.group import ALL_SHARDS, ONE_SHARD
from stagecraft.trainer_module.models.stages.shards.model_shards import ModelShards


def with_shards(
    found: Sequence[StageCost], pieces: Sequence[keras.Model], model: keras.Model, count: int
) -> list[StageCost]:
    """The costs of consecutive pieces of a model, with what shards divide of them.

    The pieces are traced as one model, because a pair of divided layers may be in two pieces. Runs
    of pieces that repeat others are not traced.

    Args:
        found: the costs of each piece, without shards.
        pieces: of the model, which is built.
        count: number of shards.

    Raises:
        SettingError: as :class:`ModelShards`.
    """
    trace = _Trace(pieces, count)
    splits = ModelShards([model], count, trace.run).splits
    result = []
    for cost, piece, own, kept, sent in zip(
        found, pieces, trace.flops, trace.group.kept, trace.group.sent, strict=True
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


class _Trace:
    """A trace of consecutive pieces whose layers shards divide."""

    def __init__(self, pieces: Sequence[keras.Model], count: int):
        self.group = Counting(count)
        self.flops: list[int] = []
        """Operations of all shards, by piece."""
        self._pieces = pieces

    def run(self, shards: ModelShards) -> None:
        """Traces the pieces, and so chooses how shards divide them."""
        variables = {id(each): each for piece in self._pieces for each in piece.variables}
        given = inputs.specs(inputs.sized(self._pieces[0]), 1)
        blank.trace(list(variables.values()), lambda hidden: self._call(shards, hidden), given)

    def _call(self, shards: ModelShards, hidden: Nest) -> Nest:
        repeats, begin, given = Repeats(self._pieces, shards), 0, hidden
        while len(self.flops) < len(self._pieces):
            done = len(self.flops)
            known = repeats.find(begin, given) if begin == done else None
            if known is not None:
                for repeated, piece in enumerate(self._pieces[done:][: known.end - known.begin]):
                    self._repeat(shards, piece, known.begin + repeated)
                begin, given, hidden = len(self.flops), known.outputs, None
                continue
            if hidden is None:  # the run before was not traced
                hidden = tf.nest.map_structure(_placeholder, given)
            hidden = self._piece(shards, self._pieces[done], hidden)
            if self.group.are_whole(hidden):
                repeats.add(begin, done + 1, given, hidden)
                begin, given = done + 1, hidden
        return []

    def _piece(self, shards: ModelShards, piece: keras.Model, hidden: Nest) -> Nest:
        step, rows = tf.constant(0, tf.int64), tf.range(1, dtype=tf.int64)
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        self.group.begin()
        weights = Weights({}, shards.splits)
        with groups.active(self.group), random_scope(step, rows), shards.dividing(piece, weights):
            outputs = piece(hidden, training=False)
        self.flops.append(_of_shards(graph.get_operations()[before:], self.group.count))
        return outputs

    def _repeat(self, shards: ModelShards, piece: keras.Model, like: int) -> None:
        shards.repeat(piece, self._pieces[like])
        self.flops.append(self.flops[like])
        self.group.add(self.group.kept[like], self.group.sent[like])


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)


def _of_shards(ops: Sequence[tf.Operation], count: int) -> int:
    """Floating-point operations of all shards."""
    one, each = (
        graph_operations.flops(op for op in ops if name in op.name)
        for name in (ONE_SHARD, ALL_SHARDS)
    )
    return one + count * each


def _count(variables: Sequence[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
