"""TiedEmbedding: by rows (the vocabulary), for the vectors and for the logits."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel import vocabulary
from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class TiedEmbeddingRule(ShardRule):
    """Splits ``embeddings [vocabulary, width]``. The logits stay divided (Megatron-LM, sec. 3)."""

    name = "tied_embedding"
    description = "Stagecraft's TiedEmbedding: the vocabulary"
    layers = ("stagecraft.trainer_module.models.layers.own_layers:TiedEmbedding",)

    def obstacle(self, layer: Any, count: int) -> str:
        """A vocabulary that is too small."""
        size = layer.vocabulary_size
        return f"has a vocabulary of {size}" if size < count else ""

    def choose(self, call: LayerCall) -> Way:
        """By rows."""
        sizes = even(call.layer.vocabulary_size, call.group.count)
        return Way("rows", {"embeddings": Split(0, sizes)})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Looks up ids, or multiplies by the slices."""
        split, dtype = way.splits["embeddings"], call.layer.compute_dtype
        slices = call.slices("embeddings", split)
        if not call.arguments.get("reverse"):
            return vocabulary.looked_up(call.group, call.inputs, slices, split, dtype)

        def logits(_: int, hidden: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
            return tf.tensordot(hidden, tf.cast(table, dtype), [[-1], [1]])

        return call.group.join(call.group.map(logits, call.group.copies(call.inputs), slices))


TIED_EMBEDDING = TiedEmbeddingRule()
