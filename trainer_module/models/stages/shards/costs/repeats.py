"""Runs of pieces that occur again, and cost shards the same.

A run begins and ends where all tensors are whole, on the first device alone. What shards do in it
then depends on its pieces, and on the shapes of its inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.models.stages import alike
from stagecraft.trainer_module.models.stages.shards.model_shards import ModelShards


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
            else alike.key(piece)
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
        return self._keys[begin], alike.specs_key(inputs)


def specs(tensors: Nest) -> Nest:
    """``tf.TensorSpec`` of tensors, or of specs."""
    return tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), tensors)


def _foreign(shards: ModelShards, piece: keras.Model) -> bool:
    """Whether a rule of another package divides a layer; it may ask for the layer's name."""
    return not all(alike.is_trusted(type(rule)) for rule in shards.rules(piece))
