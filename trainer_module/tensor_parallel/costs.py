"""Costs of a model's pieces that shards divide, and bytes that they send each other.

Runs of pieces that occur again, and cost shards the same.

A run begins and ends where all tensors are whole, on the first device alone. What shards do in it
then depends on its pieces, and on the shapes of its inputs.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models import blank, costs, model_graph, structural_keys
from stagecraft.trainer_module.models.costs import StageCost
from stagecraft.trainer_module.models.layers.random_state import random_scope
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.tensor_parallel import group as groups
from stagecraft.trainer_module.tensor_parallel.call import Weights
from stagecraft.trainer_module.tensor_parallel.group import (
    ALL_SHARDS,
    ONE_SHARD,
    Traced,
    unary_input,
)
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards


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
    shards = ModelShards([model], count, trace.run)
    splits = shards.splits
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
                whole=tuple(shards.whole(piece)),
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
        given = model_graph.specs(model_graph.sized(self._pieces[0]), 1)
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
        self.group.begin(self.group.kept[like], self.group.sent[like])


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)


def _of_shards(ops: Sequence[tf.Operation], count: int) -> int:
    """Floating-point operations of all shards."""
    one, each = (
        costs.flops(op for op in ops if name in op.name) for name in (ONE_SHARD, ALL_SHARDS)
    )
    return one + count * each


def _count(variables: Sequence[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


class Counting(Traced):
    """Shards of one device that count, for each piece, what would go between devices."""

    def __init__(self, count: int):
        super().__init__(count)
        self.kept: list[int] = []
        """Bytes of divided tensors."""
        self.sent: list[int] = []
        """Bytes to each other shard, and from it."""
        self._joined: dict[int, tuple[int, int]] = {}
        """Id of a divided tensor whose pieces no layer has taken -> its piece, its bytes."""

    def begin(self, kept: int = 0, sent: int = 0) -> None:
        """Begins a piece, of which so many bytes are known."""
        self.kept.append(kept)
        self.sent.append(sent)

    def are_whole(self, tensors: Nest) -> bool:
        """Whether the other devices have nothing of tensors, nor of what a later layer needs."""
        return all(map(self._is_whole, tf.nest.flatten(tensors)))

    def _is_whole(self, tensor: Any) -> bool:
        if id(tensor) in self._copied or id(tensor) in self._known:
            return False
        if self._derivation(tensor) is not None:
            return False
        before = unary_input(tensor)
        return before is None or self._is_whole(before)

    def _send(self, tensor: Any) -> list[tf.Tensor]:
        self.sent[-1] += _bytes(tensor)
        return super()._send(tensor)

    def slices(self, tensor: Any, sizes: Sequence[int], axis: int = -1) -> list[tf.Tensor]:
        """Slices of a whole tensor, which the first device sends."""
        if self.pieces(tensor, axis) is None:
            self.sent[-1] += _bytes(tensor) // self.count
        return super().slices(tensor, sizes, axis)

    def total(self, pieces: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sum, for which each other device sends its piece."""
        self.sent[-1] += _bytes(pieces[0])
        return super().total(pieces)

    def join(self, pieces: Sequence[tf.Tensor], axis: int = -1) -> tf.Tensor:
        """The whole, for which the first device receives the pieces, unless a layer takes them."""
        whole = super().join(pieces, axis)
        size = _bytes(whole)
        self.kept[-1] += size
        # Until a layer takes the pieces, the first device joins them.
        self.sent[-1] += size // self.count
        self._joined[id(whole)] = len(self.sent) - 1, size // self.count
        return whole

    def pieces(self, tensor: Any, axis: int = -1) -> list[tf.Tensor] | None:
        """The pieces; a layer that takes pieces needs no join."""
        found = super().pieces(tensor, axis)
        if found is not None and id(tensor) in self._joined:
            piece, size = self._joined.pop(id(tensor))
            self.sent[piece] -= size
        return found


def _bytes(tensor: Any) -> int:
    return costs.elements(tensor.shape) * int(tensor.dtype.size)


class Run(NamedTuple):
    """Consecutive pieces that were traced."""

    begin: int
    end: int
    outputs: Nest
    """``tf.TensorSpec`` of each."""


class Repeats:
    """The runs of a model so far."""

    def __init__(self, pieces: Sequence[keras.Model], shards: ModelShards):
        """Finds the pieces that do the same wherever they are.

        A layer that several pieces call is divided as its first call says.
        """
        layers = [
            [id(each) for _, each in walk(piece) if not isinstance(each, keras.layers.InputLayer)]
            for piece in pieces
        ]
        uses = Counter(layer for each in layers for layer in each)
        weights = [[id(variable) for variable in piece.variables] for piece in pieces]
        uses += Counter(variable for each in weights for variable in each)
        self._keys = [
            None
            if any(uses[each] > 1 for each in (*own, *held)) or _foreign(shards, piece)
            else structural_keys.model_key(piece)
            for piece, own, held in zip(pieces, layers, weights, strict=True)
        ]
        self._runs: dict[Any, list[Run]] = {}

    def find(self, begin: int, inputs: Nest) -> Run | None:
        """A run that the pieces from ``begin`` on repeat; ``inputs``: tensors, or their specs."""
        for run in self._runs.get(self._start(begin, inputs), ()):
            keys = self._keys[run.begin : run.end]
            if keys == self._keys[begin : begin + len(keys)]:
                return run
        return None

    def add(self, begin: int, end: int, inputs: Nest, outputs: Nest) -> None:
        """Adds a run; it repeats nothing if a piece of it is like no other."""
        if None not in self._keys[begin:end]:
            run = Run(begin, end, specs(outputs))
            self._runs.setdefault(self._start(begin, inputs), []).append(run)

    def _start(self, begin: int, inputs: Nest) -> Any:
        return self._keys[begin], structural_keys.specs_key(inputs)


def specs(tensors: Nest) -> Nest:
    """``tf.TensorSpec`` of tensors, or of specs."""
    return tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), tensors)


def _foreign(shards: ModelShards, piece: keras.Model) -> bool:
    """Whether a rule of another package divides a layer; it may ask for the layer's name."""
    return not all(structural_keys.is_trusted(type(rule)) for rule in shards.rules(piece))
