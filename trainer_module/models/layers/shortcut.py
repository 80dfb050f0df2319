"""The shortcut of a residual block that has no weights."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers


@keras.saving.register_keras_serializable("stagecraft")
class Shortcut(layers.Layer):
    """The shortcut without weights (option A): every ``strides``-th pixel, new channels zero."""

    def __init__(self, filters: int, strides: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def call(self, inputs: Any) -> Any:
        """``[batch, height, width, channels]`` to ``[batch, h, w, filters]``."""
        inputs = inputs[:, :: self.strides, :: self.strides, :]
        new = self.filters - inputs.shape[-1]
        return keras.ops.pad(inputs, [(0, 0), (0, 0), (0, 0), (new // 2, new - new // 2)])

    def get_config(self) -> dict[str, Any]:
        """What Keras makes a copy of this layer from."""
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}
