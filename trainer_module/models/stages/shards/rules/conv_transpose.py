"""Transposed convolutions: by filters, or by input channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.models.stages.shards.linear import LinearRule
from stagecraft.trainer_module.models.stages.shards.split import Split, even
from stagecraft.trainer_module.models.stages.shards.way import Way


class ConvTransposeRule(LinearRule):
    """Splits ``kernel [*kernel_size, filters, channels]`` and ``bias [filters]``."""

    name = "conv_transpose"
    description = "Conv1DTranspose, Conv2DTranspose, Conv3DTranspose: filters, or input channels"
    layers = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")

    def obstacle(self, layer: Any, count: int) -> str:
        """Channels that are not the last axis."""
        if layer.data_format != "channels_last":
            return f"has data_format={layer.data_format!r}"
        return super().obstacle(layer, count)

    def features(self, layer: Any) -> tuple[int, int]:
        """Numbers of input channels and filters."""
        filters, channels = layer.kernel.shape[-2:]
        return channels, filters

    def columns(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By filters."""
        sizes = even(layer.filters, count)
        return {"kernel": Split(len(layer.kernel.shape) - 2, sizes), "bias": Split(0, sizes)}

    def rows(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By input channels."""
        shape = layer.kernel.shape
        return {"kernel": Split(len(shape) - 1, even(shape[-1], count))}

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The filters of a shard."""
        return {"filters": way.splits["kernel"].sizes[shard]}


CONV_TRANSPOSE = ConvTransposeRule()
