"""A decoder-only transformer."""

from typing import Any

import keras
from keras import layers

BLOCKS, WIDTH, HEADS = 2, 64, 4


def build(length: int, vocabulary_size: int) -> keras.Model:
    """Builds the model: logits of each next token, ``[batch, length, vocabulary_size]``.

    Args:
        length: tokens of an input, int64 ``[batch, length]``.
        vocabulary_size: number of ids of tokens.
    """
    tokens = keras.Input((length,), dtype="int64", name="tokens")
    hidden = Embedding(vocabulary_size, WIDTH)(tokens)
    for _ in range(BLOCKS):
        normal = layers.LayerNormalization()(hidden)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        hidden = layers.Add()([hidden, attention(normal, normal, use_causal_mask=True)])
        dense = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(hidden))
        hidden = layers.Add()([hidden, layers.Dense(WIDTH)(dense)])
    return keras.Model(tokens, layers.Dense(vocabulary_size)(layers.LayerNormalization()(hidden)))


@keras.saving.register_keras_serializable()
class Embedding(layers.Layer):
    """Embeds tokens and their positions."""

    def __init__(self, vocabulary_size: int, width: int, **options: Any):
        """Sets the sizes."""
        super().__init__(**options)
        self.vocabulary_size, self.width = vocabulary_size, width

    def build(self, shape: tuple[int | None, int]) -> None:
        """Creates the weights."""
        self.tokens = self.add_weight((self.vocabulary_size, self.width), "uniform", name="tokens")
        self.positions = self.add_weight((shape[1], self.width), "uniform", name="positions")

    def call(self, tokens: Any) -> Any:
        """Returns vectors ``[batch, length, width]``."""
        return keras.ops.take(self.tokens, tokens, axis=0) + self.positions

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        sizes = {"vocabulary_size": self.vocabulary_size, "width": self.width}
        return super().get_config() | sizes
