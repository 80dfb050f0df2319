"""Convolutions that begin as the identity (Jordan 2024, "94% on CIFAR-10", section 3.3)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


@keras.saving.register_keras_serializable("stagecraft")
class PartialIdentity(keras.initializers.Initializer):
    """Kernels ``[height, width, in, out]``: output i is input i, as long as there are inputs.

    Further outputs have random kernels, uniform within ``1 / sqrt(fan in)``. If there are fewer
    outputs than inputs, each of them is an input. Zagoruyko and Komodakis 2017, "DiracNets".
    """

    def __init__(self, seed: int | None = None) -> None:
        self._uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform", seed)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """A kernel; the middle of an even height or width is after its half."""
        height, width, inputs, outputs = shape
        same = min(inputs, outputs)
        mask = np.arange(outputs) >= same
        identity = np.zeros(shape)
        identity[height // 2, width // 2, range(same), range(same)] = 1
        random = self._uniform(shape, dtype)
        return random * keras.ops.cast(mask, random.dtype) + keras.ops.cast(identity, random.dtype)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes a copy from."""
        return {"seed": self._uniform.get_config()["seed"]}
