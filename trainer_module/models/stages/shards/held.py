"""The values of a model's variables, some of which are slices by shards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.stages.shards.call import Weights
from stagecraft.trainer_module.models.stages.shards.model_shards import ModelShards

Value = Any
"""A tensor, or the list of its slices by shard."""


class Held:
    """The variables of a model, or of a part of it, in the order of a stage's values."""

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        entries: Sequence[Any],
        shards: ModelShards | None,
    ):
        """``entries``: what the stage holds: variables, and slices of variables."""
        self.variables = list(variables)
        self._shards = shards
        places = {id(entry): place for place, entry in enumerate(entries)}
        self._places = [
            [places[id(entry)] for entry in shards.entries(variable)]
            if shards
            else [places[id(variable)]]
            for variable in variables
        ]
        self.indices = [place for places in self._places for place in places]
        """The places of the model's values among those of the stage."""
        self.of_shards = [getattr(entries[place], "shard", 0) for place in self.indices]
        """The shard that holds each."""

    def grouped(self, values: Sequence[tf.Tensor]) -> list[Value]:
        """One value for each variable, from those at ``indices``."""
        rest = iter(values)
        return [
            [next(rest) for _ in places] if self._is_divided(variable) else next(rest)
            for variable, places in zip(self.variables, self._places, strict=True)
        ]

    def flat(self, changed: Mapping[int, Value]) -> dict[int, tf.Tensor]:
        """Index in ``variables`` -> value, as place among the stage's values -> value."""
        result: dict[int, tf.Tensor] = {}
        for index, value in changed.items():
            values = value if isinstance(value, list) else [value]
            result.update(zip(self._places[index], values, strict=True))
        return result

    def places(self, index: int) -> list[int]:
        """The places among the stage's values of the variable at ``index``, or of its slices."""
        return self._places[index]

    def joined(self, values: Sequence[Value]) -> list[tf.Tensor]:
        """The whole value of each variable; a graph omits those that nothing uses."""
        return [
            tf.concat(list(map(tf.identity, value)), self._shards.splits[id(variable)].axis)
            if self._shards and isinstance(value, list)
            else value
            for variable, value in zip(self.variables, values, strict=True)
        ]

    @contextlib.contextmanager
    def dividing(
        self, model: keras.Model, values: Sequence[Value], scope: keras.StatelessScope
    ) -> Iterator[Weights | None]:
        """In the block, shards divide the calls of the model's layers, if values are slices."""
        divided = {
            id(variable): value
            for variable, value in zip(self.variables, values, strict=True)
            if isinstance(value, list)
        }
        if not divided or self._shards is None:
            yield None
            return
        weights = Weights(divided, self._shards.splits, scope)
        with self._shards.dividing(model, weights), self._shards.regularized(model, weights):
            yield weights

    def _is_divided(self, variable: keras.Variable) -> bool:
        return self._shards is not None and id(variable) in self._shards.splits
