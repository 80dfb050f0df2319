"""Decoder-only transformers (Radford et al. 2019, "Language models are unsupervised …")."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.models.family import ModelFamily


class Transformer(ModelFamily):
    """Blocks of causal attention and a dense network, each after a layer normalisation.

    Positions are learned. The embedding of the tokens is also the weight of the logits. The dense
    networks are four times as wide as the residual stream. There is no dropout.
    """

    name = "transformer"
    description = (
        "transformer_LAYERS_WIDTH_HEADS, such as transformer_4_128_4: decoder-only, for text"
    )
    pattern = r"transformer_(?P<depth>\d+)_(?P<width>\d+)_(?P<heads>\d+)"
    examples = ("transformer_2_64_4", "transformer_4_128_4")

    def problem(self, **sizes: int) -> str:
        """The problem with the sizes; empty: none."""
        if min(sizes.values()) < 1:
            return "has a size of less than 1"
        if sizes["width"] % sizes["heads"]:
            return f"has a width of {sizes['width']}, which {sizes['heads']} heads do not divide"
        return ""

    def build(self, length: int, vocabulary_size: int, **sizes: int) -> Any:
        """A model of int64 tokens ``[batch, length]`` that gives logits of each next token."""
        import keras
        from keras import layers

        from stagecraft.trainer_module.models.layers.own_layers import Positions, TiedEmbedding

        width = sizes["width"]
        tokens = keras.Input((length,), dtype="int64", name="tokens")
        embedding = TiedEmbedding(vocabulary_size, width, name="embedding")
        hidden = Positions(name="positions")(embedding(tokens))
        for block in range(1, sizes["depth"] + 1):
            hidden = _block(hidden, width, sizes["heads"], f"block{block}")
        hidden = layers.LayerNormalization(epsilon=1e-5, name="norm")(hidden)
        return keras.Model(tokens, embedding(hidden, reverse=True), name="transformer")


TRANSFORMER = Transformer()


def _block(inputs: Any, width: int, heads: int, name: str) -> Any:
    from keras import layers

    hidden = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_attention_norm")(inputs)
    attention = layers.MultiHeadAttention(heads, width // heads, name=f"{name}_attention")
    hidden = attention(hidden, hidden, use_causal_mask=True)
    inputs = layers.Add(name=f"{name}_attention_add")([inputs, hidden])
    hidden = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_dense_norm")(inputs)
    hidden = layers.Dense(4 * width, activation="gelu", name=f"{name}_dense_1")(hidden)
    hidden = layers.Dense(width, name=f"{name}_dense_2")(hidden)
    return layers.Add(name=f"{name}_dense_add")([inputs, hidden])
