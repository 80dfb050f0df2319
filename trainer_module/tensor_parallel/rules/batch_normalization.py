"""BatchNormalization: by channels, after a layer that is split by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.call import LayerCall, below
from stagecraft.trainer_module.tensor_parallel.parts import PartsRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class BatchNormalizationRule(PartsRule):
    """Splits all weights ``[channels]``: each channel is normalized by itself."""

    name = "batch_normalization"
    description = "BatchNormalization: channels, if its input is divided"
    layers = ("BatchNormalization",)

    def obstacle(self, layer: Any, count: int) -> str:
        """Channels that are not the last axis."""
        is_last = layer.axis in (-1, (layer.input_spec.ndim or 0) - 1)
        return "" if is_last else f"has axis={layer.axis}"

    def choose(self, call: LayerCall) -> Way | None:
        """By channels, if they are divided already."""
        if not call.is_divided or not call.layer.weights:
            return None
        split = Split(0, even(call.layer.weights[0].shape[0], call.group.count))
        return Way("channels", {below(call.layer, each): split for each in call.layer.weights})

    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """Nothing: Keras reads the number of channels from the input."""
        return {}


BATCH_NORMALIZATION = BatchNormalizationRule()
