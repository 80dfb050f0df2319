"""Costs of single operations. Imports no TensorFlow."""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """Costs of one operation, forward."""

    flops: float
    """Floating-point operations, for one example."""
    moved_bytes: float
    """Bytes of activations that it reads and writes, for one example."""
    weight_bytes: float = 0.0
    """Bytes of weights that it reads, once for all examples."""
    winograd: bool = False
    """Whether it is a convolution with a 3 x 3 filter and stride 1, which needs fewer
    multiplications with Winograd's algorithm."""
    split: bool = False
    """Whether ``parallel.shards`` divides it."""

    def divided(self, shards: int) -> Operation:
        """What each shard of it costs."""
        if not self.split:
            return self
        return self._replace(
            flops=self.flops / shards,
            moved_bytes=self.moved_bytes / shards,
            weight_bytes=self.weight_bytes / shards,
        )
