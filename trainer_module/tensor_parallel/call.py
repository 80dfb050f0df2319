"""A call of a layer that shards divide, as its rule sees it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel.group import ShardGroup
from stagecraft.trainer_module.tensor_parallel.split import Split, Way

Part = TypeVar("Part")
"""A smaller layer."""


class Weights:
    """The values of divided weights in a pass, and what layers assign."""

    def __init__(
        self,
        values: Mapping[int, Sequence[tf.Tensor]],
        splits: Mapping[int, Split],
        scope: keras.StatelessScope | None = None,
    ):
        """Takes the slices that the shards hold.

        Args:
            values: id of a divided variable -> its slices, by shard.
            splits: id of a divided variable -> how it is divided.
            scope: that of the pass, which knows the whole values that layers assign.
        """
        self._values, self._splits, self._scope = values, splits, scope
        self._changed: dict[int, list[tf.Tensor]] = {}
        self._whole = {} if scope is None else dict(scope.state_mapping)

    def of(self, variable: keras.Variable, split: Split, count: int) -> Sequence[tf.Tensor]:
        """The slices of a variable, as the layers before have assigned them."""
        key = id(variable)
        assigned = self.assigned(variable)
        if assigned is not None:
            return assigned
        if key in self._values:
            return self._values[key]
        # While the ways are chosen, the template's own value is cut.
        whole = tf.convert_to_tensor(variable)
        return [split.cut(whole, shard) for shard in range(count)]

    def assign(self, variable: keras.Variable, slices: Sequence[tf.Tensor]) -> None:
        """Sets the slices of a variable that is not trained."""
        self._changed[id(variable)] = list(map(tf.stop_gradient, slices))

    def assigned(self, variable: keras.Variable) -> list[tf.Tensor] | None:
        """The slices of what a layer has assigned; None: nothing, or the variable is not divided.

        A layer without a rule, such as SpectralNormalization, assigns the whole value.
        """
        key = id(variable)
        if key in self._changed or self._scope is None or key not in self._values:
            return self._changed.get(key)
        value = self._scope.get_current_value(variable)
        if value is None or value is self._whole.get(key):
            return None
        split = self._splits[key]
        return [split.cut(value, shard) for shard in range(len(split.sizes))]


class LayerCall:
    """One call of a layer, with its arguments."""

    def __init__(
        self,
        layer: Any,
        kind: type[keras.Layer],
        own: Callable[..., Any],
        group: ShardGroup,
        weights: Weights,
        parts: dict[tuple[int, tuple[int, ...]], Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ):
        """Takes the arguments as they are.

        Args:
            kind: the class of the layer that its rule names.
            own: the layer's ``call``.
            parts: smaller layers that earlier calls made.
        """
        self.layer, self.kind, self.own, self.group = layer, kind, own, group
        self._args, self._kwargs = args, kwargs
        self._weights, self._parts = weights, parts

    @property
    def inputs(self) -> Any:
        """The first argument: a tensor, or a list of tensors."""
        return next(iter(self.arguments.values()))

    @functools.cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call, by the names of the layer's parameters."""
        signature = inspect.signature(type(self.layer).call)
        bound = signature.bind(self.layer, *self._args, **self._kwargs).arguments
        return dict(list(bound.items())[1:])

    @property
    def is_divided(self) -> bool:
        """Whether the inputs, or one of them, are divided over the shards."""
        return any(self.group.pieces(each) is not None for each in tf.nest.flatten(self.inputs))

    def variable(self, name: str) -> keras.Variable:
        """A weight by its path below the layer."""
        return self.variables[name]

    @functools.cached_property
    def variables(self) -> dict[str, keras.Variable]:
        """The weights by their paths below the layer."""
        return {below(self.layer, each): each for each in self.layer.variables}

    def slices(self, name: str, split: Split) -> Sequence[tf.Tensor]:
        """The slices of a divided weight, each on its shard's device."""
        return self._weights.of(self.variable(name), split, self.group.count)

    def assign(self, name: str, slices: Sequence[tf.Tensor]) -> None:
        """Sets the slices of a weight that is not trained."""
        self._weights.assign(self.variable(name), slices)

    def part(self, way: Way, shard: int, make: Callable[[], Part]) -> Part:
        """The smaller layer of a shard, which the first call of its sizes makes."""
        key = id(self.layer), tuple(split.sizes[shard] for split in way.splits.values())
        if key not in self._parts:
            self._parts[key] = make()
        part: Part = self._parts[key]
        return part


def below(layer: Any, variable: Any) -> str:
    """The path of a variable below a layer, such as ``query/kernel``."""
    path, start = str(variable.path), f"{layer.path}/"
    # A layer that another layer builds again has variables of another path.
    return path[len(start) :] if path.startswith(start) else path.rpartition(f"{layer.name}/")[2]
