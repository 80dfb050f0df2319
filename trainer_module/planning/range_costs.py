"""Costs of ranges of consecutive pieces, on the device that computes the most of them.

With S shards, the first shard computes everything that shards do not divide, and its part of the
rest: ``(whole - split) + split / S``. It exchanges activations with the other shards in turn. Each
byte that it sends or receives in a forward pass has a gradient that goes the other way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stagecraft.trainer_module.models.costs import StageCost, Tied, Times


def first_trained(pieces: Sequence[StageCost]) -> int:
    """Index of the first piece with trained weights; the pieces before have no backward pass."""
    trained = (index for index, piece in enumerate(pieces) if piece.trainable)
    return next(trained, len(pieces))


def backward(pieces: Sequence[StageCost], *, remat: bool) -> list[float]:
    """Estimated ratio of backward to forward time of each piece.

    The gradient of the activations takes as many operations as the forward pass, and so does that
    of trained weights; remat repeats the forward pass.
    """
    first, factors = first_trained(pieces), []
    for index, piece in enumerate(pieces):
        weights = piece.frozen + piece.trainable
        of_weights = 1 - piece.frozen / weights if weights else 1.0
        factors.append((1 + of_weights + remat) if index >= first else 0.0)
    return factors


class Durations:
    """Times of ranges of pieces, for one example and a number of shards; as :class:`Sums`."""

    def __init__(
        self,
        pieces: Sequence[StageCost],
        times: Sequence[Times],
        *,
        shards: int,
        link: float,
        divided: bool = False,
    ):
        """Adds up the times.

        Args:
            times: of whole pieces, without recomputation.
            shards: devices of each stage.
            link: bytes between two of them by the unit of the times.
            divided: whether the times are those of the first shard, not of whole pieces.
        """
        pieces = [_divided(piece, shards) for piece in pieces]
        first = first_trained(pieces)
        shares = [piece.split_flops / piece.flops if piece.flops else 0.0 for piece in pieces]
        if divided:
            shares = [0.0] * len(pieces)
        # The first shard sends inputs to each other shard, and then receives their outputs.
        sent = [(shards - 1) * piece.shard_bytes for piece in pieces]
        forward = [
            each.forward * (1 - share + share / shards) + size / link
            for each, share, size in zip(times, shares, sent, strict=True)
        ]
        backward = [
            each.backward * (1 - share + share / shards) + size / link if index >= first else 0.0
            for index, (each, share, size) in enumerate(zip(times, shares, sent, strict=True))
        ]
        again = [each if index >= first else 0.0 for index, each in enumerate(forward)]
        self.pieces = {False: (forward, backward), True: (forward, _added(backward, again))}
        """Times of each piece, forward and backward, without and with recomputation."""
        self._forward = _cumulative(forward)
        self._backward = {remat: _cumulative(back) for remat, (_, back) in self.pieces.items()}

    def forward(self, begin: Any, end: Any) -> np.ndarray:
        """Time of a forward pass."""
        return self._forward[end] - self._forward[begin]

    def backward(self, begin: Any, end: Any, *, remat: bool) -> np.ndarray:
        """Time of a backward pass."""
        return self._backward[remat][end] - self._backward[remat][begin]


class Sums:
    """Sums of the other costs of pieces, for one example and a number of shards.

    Methods take the first piece of ranges, and the piece after each range: integers, or arrays
    that broadcast.
    """

    def __init__(self, pieces: Sequence[StageCost], *, shards: int):
        """Adds up the pieces; ``shards``: devices of each stage."""
        pieces = [_divided(piece, shards) for piece in pieces]
        self.first = first_trained(pieces)
        self._shards = shards
        self._whole = {
            trained: _cumulative([p.trainable if trained else p.parameters for p in pieces])
            for trained in (False, True)
        }
        self._split = {
            trained: _cumulative(
                [p.split_trainable if trained else p.split_parameters for p in pieces]
            )
            for trained in (False, True)
        }
        self.inputs = np.array([*(piece.input_bytes for piece in pieces), 0], float)
        self.shared = np.array([*(piece.shared_bytes for piece in pieces), 0], float)
        self.outputs = np.array([piece.output_bytes for piece in pieces], float)
        self._outputs = _cumulative(self.outputs)
        held = [self._part(p.activation_bytes, p.split_activation_bytes) for p in pieces]
        self._activations = _cumulative(held)
        passing = [
            piece.input_bytes + max(piece.output_bytes, size)
            for piece, size in zip(pieces, held, strict=True)
        ]
        self._passing = _range_maxima(passing[: self.first])
        self._shard_bytes = _cumulative([piece.shard_bytes for piece in pieces])
        self._uses: dict[Tied, np.ndarray] = {}
        for weight in dict.fromkeys(tied for piece in pieces for tied in piece.tied):
            uses = [index for index, piece in enumerate(pieces) if weight in piece.tied]
            self._uses[weight] = np.array(uses)

    def _part(self, whole: float, split: float) -> float:
        return whole - split + split / self._shards

    def activations(self, begin: Any, end: Any) -> np.ndarray:
        """Bytes of the activations."""
        return self._activations[end] - self._activations[begin]

    def output_bytes(self, begin: Any, end: Any) -> np.ndarray:
        """Bytes of the outputs of all pieces."""
        return self._outputs[end] - self._outputs[begin]

    def shard_bytes(self, begin: Any, end: Any) -> np.ndarray:
        """Bytes that the first shard sends to all others in a pass: half of what they exchange."""
        both = self._shard_bytes[end] - self._shard_bytes[begin]
        return (self._shards - 1) * both / 2

    def passing(self, begin: Any, end: Any) -> np.ndarray:
        """The most bytes of one piece without a backward pass; 0 if the ranges have none."""
        if not self.first:
            return np.zeros(np.broadcast(begin, end).shape)
        begins, ends = np.minimum(begin, self.first), np.minimum(end, self.first)
        return self._passing[begins, ends]

    def parameters(
        self, begin: Any, end: Any, *, trained: bool = False, held: bool = False
    ) -> np.ndarray:
        """Parameters on the first shard; a weight that several pieces use counts once.

        Args:
            trained: those alone that training changes.
            held: without tied weights that a piece before uses.
        """
        whole = self._whole[trained][end] - self._whole[trained][begin]
        split = self._split[trained][end] - self._split[trained][begin]
        for tied, uses in self._uses.items():
            if trained and not tied.trained:
                continue
            before, now = np.searchsorted(uses, begin), np.searchsorted(uses, end)
            spare = 0 if held else 1
            again = np.maximum(now - before - np.where(before > 0, spare, 1), 0)
            whole = whole - again * tied.parameters
        split = np.minimum(split, whole)
        return whole - split + split / self._shards

    def tied(self, begins: np.ndarray, ends: np.ndarray) -> dict[Tied, list[int]]:
        """The numbers of the ranges that use each weight that several of them use."""
        found = {}
        for weight, uses in self._uses.items():
            counts = np.searchsorted(uses, ends) - np.searchsorted(uses, begins)
            stages = np.flatnonzero(counts).tolist()
            if len(stages) > 1:
                found[weight] = stages
        return found


def _divided(piece: StageCost, shards: int) -> StageCost:
    """The piece; without divided layers if there are too many shards for them."""
    if shards == 1 or piece.most_shards is None or shards <= piece.most_shards:
        return piece
    whole: dict[str, Any] = {name: 0 for name in vars(piece) if name.startswith("split_")}
    return dataclasses.replace(piece, **whole, shard_bytes=0)


def _added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _cumulative(values: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, float))])


def _range_maxima(values: Sequence[float]) -> np.ndarray:
    """The largest of the values from ``begin`` to before ``end``: ``[size + 1, size + 1]``."""
    size = len(values)
    found = np.zeros((size + 1, size + 1))
    for begin in range(size):
        found[begin, begin + 1 :] = np.maximum.accumulate(values[begin:])
    return found


def segments(lengths: np.ndarray) -> np.ndarray:
    """Segments of stages of so many pieces that recompute activations: see ``partition``."""
    found = np.array([1 + math.isqrt(max(size - 1, 0)) for size in range(int(lengths.max()) + 1)])
    return found[lengths]
