"""Rules of layers with a kernel, a bias and an activation: by columns or by rows."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.models.stages.shards.call import LayerCall
from stagecraft.trainer_module.models.stages.shards.parts import PartsRule
from stagecraft.trainer_module.models.stages.shards.rule import is_elementwise
from stagecraft.trainer_module.models.stages.shards.split import Split
from stagecraft.trainer_module.models.stages.shards.way import Way


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
        """What makes the configuration of a shard's layer smaller, by columns."""

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
        """What takes the bias out of the configuration."""
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
