"""A Dense that keeps its device busy for a stated time, and its shards for their part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from emulated.clock import here, occupied

from stagecraft.trainer_module.tensor_parallel.rules.dense import DenseRule
from stagecraft.trainer_module.tensor_parallel.split import Way

BACKWARD = 2.0
"""Time of the backward pass by that of the forward pass."""


class Busy(keras.layers.Dense):
    """A Dense whose passes take a stated time instead of their own, which is much shorter."""

    def __init__(self, units: int, seconds: float, launch: float, **others: Any):
        """Sets the time of the forward pass: ``launch + seconds * examples``."""
        super().__init__(units, **others)
        self.seconds, self.launch = seconds, launch

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """As a Dense."""
        device = here()

        @tf.custom_gradient
        def passes(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def back(upstream: tf.Tensor) -> tf.Tensor:
                return occupied(upstream, [device], lambda rows: BACKWARD * self._time(rows))

            return occupied(values, [device], self._time), back

        # In this order, so that the first layer of a model also has a backward pass.
        return passes(super().call(inputs))

    def _time(self, rows: np.ndarray) -> float:
        return self.launch + self.seconds * len(rows)

    def get_config(self) -> dict[str, Any]:
        """That of a Dense, and the times."""
        return {**super().get_config(), "seconds": self.seconds, "launch": self.launch}


class BusyRule(DenseRule):
    """As for a Dense; a shard's part takes its share of the time, but for the launch."""

    name = "busy"
    layers = ("emulated.busy:Busy",)

    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """Those of a Dense, and the time of a part."""
        sizes = way.splits["kernel"].sizes
        share = sizes[shard] / sum(sizes)
        return {**super().changes(layer, way, shard), "seconds": share * layer.seconds}


BUSY = BusyRule()
