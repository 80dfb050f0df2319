"""Convolutions: by filters, or by input channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.parts import LinearRule
from stagecraft.trainer_module.tensor_parallel.rule import channels_obstacle
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class ConvRule(LinearRule):
    """Splits ``kernel [*kernel_size, channels, filters]`` and ``bias [filters]``."""

    name = "conv"
    description = "Conv1D, Conv2D, Conv3D: filters, or input channels"
    layers = ("Conv1D", "Conv2D", "Conv3D")

    channels_axis, filters_axis = -2, -1
    """Axes of the kernel."""

    def obstacle(self, layer: Any, count: int) -> str:
        """Groups of channels, and channels that are not the last axis."""
        if getattr(layer, "groups", 1) > 1:
            return f"has groups={layer.groups}"
        return channels_obstacle(layer) or super().obstacle(layer, count)

    def features(self, layer: Any) -> tuple[int, int]:
        """Numbers of input channels and filters."""
        shape = layer.kernel.shape
        return shape[self.channels_axis], shape[self.filters_axis]

    def columns(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By filters."""
        sizes = even(layer.filters, count)
        return {"kernel": self._split(layer, self.filters_axis, count), "bias": Split(0, sizes)}

    def rows(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By input channels."""
        return {"kernel": self._split(layer, self.channels_axis, count)}

    def _split(self, layer: Any, axis: int, count: int) -> Split:
        shape = layer.kernel.shape
        return Split(len(shape) + axis, even(shape[axis], count))

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The filters of a shard."""
        return {"filters": way.splits["kernel"].sizes[shard]}


CONV = ConvRule()
