"""How one layer is divided."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stagecraft.trainer_module.models.stages.shards.split import Split


@dataclasses.dataclass(frozen=True)
class Way:
    """How one layer is divided."""

    name: str
    splits: Mapping[str, Split]
    """Weight, by its path below the layer (``kernel``, ``query/kernel``) -> its slices. Weights
    that are not named stay on the first device."""
