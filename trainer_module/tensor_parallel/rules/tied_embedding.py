"""Embeddings that also give logits: by rows (the vocabulary), for the vectors and the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel import vocabulary
from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.parts import SlicesRule
from stagecraft.trainer_module.tensor_parallel.rule import adapted
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class TiedEmbeddingRule(SlicesRule):
    """Splits ``embeddings [vocabulary, width]``, and ``reverse_embeddings [width, vocabulary]``.

    The logits stay divided (Megatron-LM, section 3).
    """

    name = "tied_embedding"
    description = "TiedEmbedding, ReversibleEmbedding: the vocabulary"
    layers = (
        "stagecraft.trainer_module.models.layers.own_layers:TiedEmbedding",
        "ReversibleEmbedding",
        "keras_hub:ReversibleEmbedding",
    )

    def obstacle(self, layer: Any, count: int) -> str:
        """A vocabulary that is too small; adapters, and 8-bit weights."""
        size = _size(layer)
        return f"has a vocabulary of {size}" if size < count else adapted(layer)

    def choose(self, call: LayerCall) -> Way:
        """By rows."""
        sizes = even(_size(call.layer), call.group.count)
        splits = {"embeddings": Split(0, sizes), "reverse_embeddings": Split(1, sizes)}
        return Way("rows", {name: splits[name] for name in splits if name in call.variables})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Looks up ids, or multiplies by the slices."""
        if call.arguments.get("reverse"):
            return super().run(call, way)
        split, ids = way.splits["embeddings"], call.inputs
        slices = call.slices("embeddings", split)
        ids = ids if ids.dtype.is_integer else tf.cast(ids, tf.int32)
        return vocabulary.looked_up(call.group, ids, slices, split, call.layer.compute_dtype)

    def outputs(self, call: LayerCall, way: Way, place: int, pieces: Sequence[tf.Tensor]) -> Any:
        """The logits."""
        return call.group.join(pieces)


def _size(layer: Any) -> int:
    return int(layer.embeddings.shape[0])


TIED_EMBEDDING = TiedEmbeddingRule()
