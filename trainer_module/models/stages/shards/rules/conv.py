"""Convolutions: by filters, or by input channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.models.stages.shards.linear import LinearRule
from stagecraft.trainer_module.models.stages.shards.split import Split, even
from stagecraft.trainer_module.models.stages.shards.way import Way


class ConvRule(LinearRule):
    """Splits ``kernel [*kernel_size, channels, filters]`` and ``bias [filters]``."""

    name = "conv"
    description = "Conv1D, Conv2D, Conv3D: filters, or input channels"
    layers = ("Conv1D", "Conv2D", "Conv3D")

    def obstacle(self, layer: Any, count: int) -> str:
        """Groups of channels, and channels that are not the last axis."""
        if layer.groups > 1:
            return f"has groups={layer.groups}"
        if layer.data_format != "channels_last":
            return f"has data_format={layer.data_format!r}"
        return super().obstacle(layer, count)

    def features(self, layer: Any) -> tuple[int, int]:
        """Numbers of input channels and filters."""
        return tuple(layer.kernel.shape[-2:])

    def columns(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By filters."""
        sizes = even(layer.filters, count)
        return {"kernel": Split(len(layer.kernel.shape) - 1, sizes), "bias": Split(0, sizes)}

    def rows(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By input channels."""
        shape = layer.kernel.shape
        return {"kernel": Split(len(shape) - 2, even(shape[-2], count))}

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The filters of a shard."""
        return {"filters": way.splits["kernel"].sizes[shard]}


CONV = ConvRule()
