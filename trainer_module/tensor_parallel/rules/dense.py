"""Dense: by columns (units), or by rows (input features)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.parts import LinearRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class DenseRule(LinearRule):
    """Splits ``kernel [features, units]`` and ``bias [units]``."""

    name = "dense"
    description = "Dense: units, or input features"
    layers = ("Dense",)

    def features(self, layer: Any) -> tuple[int, int]:
        """Numbers of input features and units."""
        return tuple(layer.kernel.shape)

    def columns(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By units."""
        sizes = even(layer.units, count)
        return {"kernel": Split(1, sizes), "bias": Split(0, sizes)}

    def rows(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By input features."""
        return {"kernel": Split(0, even(layer.kernel.shape[0], count))}

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The units of a shard."""
        return {"units": way.splits["kernel"].sizes[shard]}


DENSE = DenseRule()
