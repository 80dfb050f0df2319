"""Dense: by columns (units), or by rows (input features)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.parts import LinearRule
from stagecraft.trainer_module.tensor_parallel.split import Way


class DenseRule(LinearRule):
    """Splits ``kernel [features, units]`` and ``bias [units]``."""

    name = "dense"
    description = "Dense: units, or input features"
    layers = ("Dense",)

    def axes(self, layer: Any) -> tuple[int, int]:
        """Input features, and units."""
        return 0, 1

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The units of a shard."""
        return {"units": way.splits["kernel"].sizes[shard]}


DENSE = DenseRule()
