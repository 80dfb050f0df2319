"""Layers at both ends of a language model."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


@keras.saving.register_keras_serializable("stagecraft")
class TiedEmbedding(layers.Layer):
    """Embeds tokens, and with ``reverse`` gives logits by the same weights.

    Press and Wolf 2017, "Using the output embedding to improve language models".
    """

    def __init__(self, vocabulary_size: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size, self.width = vocabulary_size, width

    def build(self, input_shape: Any) -> None:
        """Makes the weights: ``[vocabulary_size, width]``."""
        self.embeddings = self.add_weight(
            shape=(self.vocabulary_size, self.width),
            initializer=keras.initializers.RandomNormal(stddev=self.width**-0.5),
            name="embeddings",
        )
        self.built = True

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        """Integers ``[...]`` to ``[..., width]``; reversed, floats ``[..., width]`` to logits."""
        if reverse:
            return ops.matmul(inputs, ops.transpose(ops.convert_to_tensor(self.embeddings)))
        return ops.take(ops.convert_to_tensor(self.embeddings), inputs, axis=0)

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> Any:
        """``[..., vocabulary_size]`` or ``[..., width]``, of the compute dtype."""
        before = inputs.shape[:-1] if reverse else inputs.shape
        last = self.vocabulary_size if reverse else self.width
        return keras.KerasTensor((*before, last), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """What Keras makes a copy of this layer from."""
        config = {"vocabulary_size": self.vocabulary_size, "width": self.width}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable("stagecraft")
class Positions(layers.Layer):
    """Adds a learned vector for each position to ``[batch, length, width]``."""

    def build(self, input_shape: Any) -> None:
        """Makes the weights: ``[length, width]``."""
        self.positions = self.add_weight(
            shape=tuple(input_shape[1:]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="positions",
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """The sum."""
        return inputs + self.positions
