"""Rules by which each shard runs a smaller layer of the same class: Keras's own code."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.layers.arguments import forgotten
from stagecraft.trainer_module.partition import blank
from stagecraft.trainer_module.tensor_parallel.call import LayerCall, below
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule, is_elementwise
from stagecraft.trainer_module.tensor_parallel.split import Split, Way


class Part:
    """A smaller layer, which computes with values that it is given."""

    def __init__(
        self,
        kind: type[keras.Layer],
        layer: keras.Layer,
        changes: Mapping[str, Any],
        shapes: Sequence[Any],
    ):
        """Makes a layer of class ``kind`` with ``layer``'s configuration, but for ``changes``.

        ``shapes``: of the inputs; ``Layer.build`` takes them.
        """
        with _without_foreign(layer):
            config = kind.get_config(layer)
            config |= forgotten(kind, layer, config)
        zeros = {name: "zeros" for name in config if name.endswith("_initializer")}
        with blank.scope():  # each call brings all values
            self.layer = kind.from_config({**config, **zeros, **changes})
            self.layer.build(*shapes)
        self.shard = 0
        """The shard that calls it; shards of one size share it."""
        self._variables = {below(self.layer, each): each for each in self.layer.variables}

    def __call__(
        self, values: Mapping[str, tf.Tensor], arguments: Mapping[str, Any]
    ) -> tuple[Any, dict[str, tf.Tensor]]:
        """The outputs, and the variables that the layer assigns; others than ``values`` are 0."""
        pairs = [
            (variable, values.get(name, tf.zeros(variable.shape, variable.dtype)))
            for name, variable in self._variables.items()
        ]
        with keras.StatelessScope(pairs) as scope:
            outputs = self.layer.call(**arguments)
        given = {id(variable): value for variable, value in pairs}
        changed = {
            name: tf.convert_to_tensor(value)
            for name, variable in self._variables.items()
            if (value := scope.get_current_value(variable)) is not None
            and value is not given[id(variable)]
        }
        return outputs, changed


class PartsRule(ShardRule):
    """A rule with smaller layers."""

    inputs: tuple[str, ...] = ("inputs",)
    """Parameters of ``call`` that each shard takes a copy of, or its slice."""

    slices_inputs: tuple[str, ...] = ("rows", "channels")
    """Names of the ways whose shards take slices of the inputs."""

    adds_up: tuple[str, ...] = ("rows", "heads")
    """Names of the ways whose outputs are summed; those of the others are joined."""

    @abc.abstractmethod
    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """Changes in the configuration of a shard's layer."""

    def finish(self, call: LayerCall, outputs: tf.Tensor) -> Any:
        """The outputs of the layer: the first device adds the bias and applies the activation."""
        return outputs

    def prepare(self, call: LayerCall, part: Part, way: Way) -> None:
        """Completes a smaller layer before a call."""

    def run(self, call: LayerCall, way: Way) -> Any:
        """Calls the smaller layers."""
        group, given = call.group, call.arguments
        present = [name for name in self.inputs if given.get(name) is not None]
        streams = [self._stream(call, way, given[name]) for name in present]
        rest = {name: value for name, value in given.items() if name not in present}
        weights = [call.slices(name, split) for name, split in way.splits.items()]
        shapes = [[each.shape for each in pieces] for pieces in zip(*streams, strict=True)]
        parts = [self._part(call, way, shard, shapes[shard]) for shard in range(group.count)]
        assigned: list[str] = []

        def run(shard: int, *tensors: tf.Tensor) -> Any:
            inputs, values = tensors[: len(present)], tensors[len(present) :]
            for name, tensor in zip(present, inputs, strict=True):
                _keep_mask(given[name], tensor)
            parts[shard].shard = shard
            outputs, changed = parts[shard](
                dict(zip(way.splits, values, strict=True)),
                {**dict(zip(present, inputs, strict=True)), **rest},
            )
            assigned[:] = changed
            return outputs, *changed.values()

        results = group.map(run, *streams, *weights)
        for place, name in enumerate(assigned):
            call.assign(name, [result[1 + place] for result in results])
        pieces = [result[0] for result in results]
        return self.outputs(call, way, pieces)

    def outputs(self, call: LayerCall, way: Way, pieces: Sequence[Any]) -> Any:
        """The layer's outputs from those of the shards."""
        if way.name in self.adds_up:
            return self.finish(call, call.group.total(pieces))
        return call.group.join(pieces)

    def _stream(self, call: LayerCall, way: Way, tensor: Any) -> Sequence[tf.Tensor]:
        if way.name not in self.slices_inputs:
            return call.group.copies(tensor)
        return call.group.slices(tensor, self.input_sizes(way))

    def input_sizes(self, way: Way) -> Sequence[int]:
        """Lengths of the slices of the inputs' last axis: those of the first weight."""
        return next(iter(way.splits.values())).sizes

    def _part(self, call: LayerCall, way: Way, shard: int, shapes: Sequence[Any]) -> Part:
        def make() -> Part:
            return Part(call.kind, call.layer, self.changes(call.layer, way, shard), shapes)

        part = call.part(way, shard, make)
        self.prepare(call, part, way)
        return part


@contextlib.contextmanager
def _without_foreign(layer: keras.Layer) -> Iterator[None]:
    """In the block, a layer has no objects that a user may have written without ``get_config``.

    The engines compute regularizers and constraints from the layer's own weights.
    """
    names = [
        name
        for name, value in vars(layer).items()
        if name.endswith(("_regularizer", "_constraint", "_initializer"))
        or (name == "activation" and not is_elementwise(value))
    ]
    before = {name: getattr(layer, name) for name in names}
    try:
        for name in names:
            setattr(layer, name, keras.activations.linear if name == "activation" else None)
        yield
    finally:
        for name, value in before.items():
            setattr(layer, name, value)


def _keep_mask(source: Any, copy: Any) -> None:
    """Keras keeps a mask as an attribute of the tensor."""
    mask = getattr(source, "_keras_mask", None)
    if mask is not None:
        copy._keras_mask = mask


class LinearRule(PartsRule):
    """A layer that multiplies by a kernel, adds a bias, and applies an activation.

    By rows if its inputs are divided already, as after a layer that is split by columns; otherwise
    by columns.
    """

    @abc.abstractmethod
    def features(self, layer: Any) -> tuple[int, int]:
        """Lengths of the axes that rows and columns divide."""

    @abc.abstractmethod
    def columns(self, layer: Any, count: int) -> Mapping[str, Split]:
        """Slices of ``kernel`` and ``bias`` by columns."""

    @abc.abstractmethod
    def rows(self, layer: Any, count: int) -> Mapping[str, Split]:
        """Slices of ``kernel`` by rows."""

    @abc.abstractmethod
    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """Changes that make the configuration of a shard's layer smaller, by columns."""

    def obstacle(self, layer: Any, count: int) -> str:
        """Adapters, 8-bit kernels, and too few features."""
        if getattr(layer, "lora_enabled", False):
            return "has a LoRA adapter"
        if getattr(layer, "quantization_mode", None):
            return "is quantized"
        if max(self.features(layer)) < count:
            return f"has fewer than {count} features"
        return ""

    def choose(self, call: LayerCall) -> Way | None:
        """By rows after columns."""
        layer, count = call.layer, call.group.count
        rows, columns = self.features(layer)
        if columns < count or (call.is_divided and rows >= count):
            return Way("rows", self.rows(layer, count))
        splits = dict(self.columns(layer, count))
        if not _has_bias(layer):
            splits.pop("bias", None)
        return Way("columns", splits)

    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """A shard's part is linear, if the activation needs the whole output."""
        whole = way.name == "rows" or not is_elementwise(layer.activation)
        linear = {"activation": None} if whole else {}
        if way.name == "rows":
            return {**linear, **self.without_bias(layer)}
        return {**linear, **self.size(layer, way, shard)}

    def without_bias(self, layer: Any) -> Mapping[str, Any]:
        """Changes that take the bias out of the configuration."""
        return {"use_bias": False}

    def finish(self, call: LayerCall, outputs: tf.Tensor) -> Any:
        """Adds the bias, and applies the activation."""
        layer = call.layer
        if _has_bias(layer):
            outputs += tf.cast(tf.convert_to_tensor(layer.bias), outputs.dtype)
        return outputs if layer.activation is None else layer.activation(outputs)

    def outputs(self, call: LayerCall, way: Way, pieces: Any) -> Any:
        """An activation that is not elementwise takes the joined output."""
        outputs = super().outputs(call, way, pieces)
        if way.name == "rows" or is_elementwise(call.layer.activation):
            return outputs
        return call.layer.activation(outputs)


def _has_bias(layer: Any) -> bool:
    return getattr(layer, "bias", None) is not None
