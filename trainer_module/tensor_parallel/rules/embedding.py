"""Embedding: by columns (entries of the vectors), or by rows (the vocabulary)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel import vocabulary
from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule, adapted
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class EmbeddingRule(ShardRule):
    """Splits ``embeddings [vocabulary, width]``; by columns, unless the width is too small."""

    name = "embedding"
    description = "Embedding: entries of its vectors, or the vocabulary"
    layers = ("Embedding",)

    def obstacle(self, layer: Any, count: int) -> str:
        """Adapters, 8-bit weights, and a table that is too small."""
        small = f"has fewer than {count} rows and columns" if max(_shape(layer)) < count else ""
        return adapted(layer) or small

    def choose(self, call: LayerCall) -> Way:
        """Columns are joined; of rows, as many bytes would come from every shard."""
        rows, columns = _shape(call.layer)
        count = call.group.count
        if columns >= count:
            return Way("columns", {"embeddings": Split(1, even(columns, count))})
        return Way("rows", {"embeddings": Split(0, even(rows, count))})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Looks up the ids in each slice."""
        split, ids = way.splits["embeddings"], call.inputs
        ids = ids if ids.dtype.is_integer else tf.cast(ids, tf.int32)
        slices = call.slices("embeddings", split)
        dtype = call.layer.compute_dtype
        if way.name == "rows":
            return vocabulary.looked_up(call.group, ids, slices, split, dtype)
        ids = vocabulary.from_start(ids, _shape(call.layer)[0])
        return call.group.join(
            call.group.map(
                lambda _, given, table: tf.cast(tf.gather(table, given), dtype),
                call.group.copies(ids),
                slices,
            )
        )


def _shape(layer: Any) -> tuple[int, int]:
    return layer.input_dim, layer.output_dim


EMBEDDING = EmbeddingRule()
