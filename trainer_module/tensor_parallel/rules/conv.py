"""Convolutions: by filters, or by input channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.parts import LinearRule
from stagecraft.trainer_module.tensor_parallel.rule import channels_obstacle
from stagecraft.trainer_module.tensor_parallel.split import Way


class ConvRule(LinearRule):
    """Splits ``kernel [*kernel_size, channels, filters]`` and ``bias [filters]``."""

    name = "conv"
    description = "Conv1D, Conv2D, Conv3D: filters, or input channels"
    layers = ("Conv1D", "Conv2D", "Conv3D")

    channels_axis, filters_axis = -2, -1
    """Axes of the kernel, from its end."""

    def obstacle(self, layer: Any, count: int) -> str:
        """Groups of channels, and channels that are not the last axis."""
        if getattr(layer, "groups", 1) > 1:
            return f"has groups={layer.groups}"
        return channels_obstacle(layer) or super().obstacle(layer, count)

    def axes(self, layer: Any) -> tuple[int, int]:
        """Input channels, and filters."""
        rank = len(layer.kernel.shape)
        return rank + self.channels_axis, rank + self.filters_axis

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The filters of a shard."""
        return {"filters": way.splits["kernel"].sizes[shard]}


CONV = ConvRule()
