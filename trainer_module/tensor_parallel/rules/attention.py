"""Attention: by heads. Each shard projects, attends and projects back with its heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.models.layers import random_state
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.parts import Part, PartsRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even

_OUTPUT_BIAS = "attention_output/bias"


class AttentionRule(PartsRule):
    """Megatron-LM, section 3: one sum, after the last projection."""

    name = "attention"
    description = "MultiHeadAttention, GroupQueryAttention: heads"
    layers = ("MultiHeadAttention", "GroupQueryAttention")
    inputs = ("query", "value", "key")

    def obstacle(self, layer: Any, count: int) -> str:
        """Fewer heads of keys and values than shards; what the smaller layers would not have."""
        heads = _key_heads(layer)
        if heads < count:
            return f"has {heads} heads of keys and values"
        inner = [each for _, each in walk(layer)]
        for each in inner:
            if type(each).__module__.partition(".")[0] != "keras":  # a user has put it there
                return f"has an inner layer {each.name}, which is not Keras's"
        if any(getattr(each, "lora_enabled", False) for each in inner):
            return "has a LoRA adapter"
        if any(getattr(each, "quantization_mode", None) for each in inner):
            return "is quantized"
        # Keras regularizes the outputs of the projections, not that of the layer.
        if any(each.activity_regularizer is not None for each in inner):
            return "has an activity regularizer"
        return ""

    def choose(self, call: LayerCall) -> Way | None:
        """Heads of keys and values, with the heads of queries that attend to them."""
        layer = call.layer
        if len(call.arguments["query"].shape) != 3:  # the heads are another axis of the scores
            return None
        mask = call.arguments.get("attention_mask")
        if mask is not None and len(mask.shape) > 3 and mask.shape[1] != 1:  # one for each head
            return None
        sizes = even(_key_heads(layer), call.group.count)
        queries = tuple(_repeats(layer) * size for size in sizes)
        splits = {}
        for name, of_heads in (("query", queries), ("key", sizes), ("value", sizes)):
            splits[f"{name}/kernel"] = Split(1, of_heads)
            if _has_bias(layer):
                splits[f"{name}/bias"] = Split(0, of_heads)
        return Way("heads", {**splits, "attention_output/kernel": Split(0, queries)})

    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The heads of a shard. The smaller layer's output bias is 0."""
        heads = way.splits["key/kernel"].sizes[shard]
        if hasattr(layer, "num_key_value_heads"):
            queries = way.splits["query/kernel"].sizes[shard]
            return {"num_query_heads": queries, "num_key_value_heads": heads}
        return {"num_heads": heads}

    def run(self, call: LayerCall, way: Way) -> Any:
        """Draws for all heads first, where Keras draws: its generators count calls."""
        dropout: Any = getattr(call.layer, "_dropout_layer", None)
        given, rate = call.arguments, getattr(dropout, "rate", 0)
        if rate and given.get("training") and random_state.current() is None:
            heads = sum(way.splits["query/kernel"].sizes)
            lengths = [tf.shape(given[name])[1] for name in ("query", "value")]
            shape = tf.stack([tf.shape(given["query"])[0], heads, *lengths])
            call.drawn = dropout(tf.ones(shape, dropout.compute_dtype), training=True)
        try:
            return super().run(call, way)
        finally:
            call.drawn = None

    def prepare(self, call: LayerCall, part: Part, way: Way) -> None:
        """The smaller layer drops what the layer would drop of its heads."""
        whole, own = getattr(call.layer, "_dropout_layer", None), way.splits["query/kernel"]
        if whole is None:
            return

        def dropped(scores: tf.Tensor, training: bool = False) -> tf.Tensor:
            factors = call.drawn
            if training and random_state.current() is not None:
                shape = [*tf.unstack(tf.shape(scores))]
                shape[1] = sum(own.sizes)  # [batch, heads, queries, keys]
                factors = whole.call(tf.ones(shape, scores.dtype), training=True)
            if factors is None:
                return scores
            return scores * Split(1, own.sizes).cut(factors, part.shard)

        part.layer._dropout_layer.call = dropped

    def outputs(self, call: LayerCall, way: Way, pieces: Sequence[Any]) -> Any:
        """Adds up the outputs and joins the scores, ``[batch, heads, queries, keys]``."""
        if not isinstance(pieces[0], (tuple, list)):
            return super().outputs(call, way, pieces)
        outputs, scores = zip(*pieces, strict=True)
        return super().outputs(call, way, outputs), tf.concat(list(map(tf.identity, scores)), 1)

    def finish(self, call: LayerCall, outputs: tf.Tensor) -> Any:
        """Adds the bias; keeps the mask of the queries."""
        if _has_bias(call.layer):
            bias = tf.convert_to_tensor(call.variable(_OUTPUT_BIAS))
            outputs += tf.cast(bias, outputs.dtype)
        mask = getattr(call.arguments["query"], "_keras_mask", None)
        if mask is not None:
            outputs._keras_mask = mask
        return outputs


def _key_heads(layer: Any) -> int:
    heads = getattr(layer, "num_key_value_heads", None)
    return int(layer.num_heads if heads is None else heads)


def _repeats(layer: Any) -> int:
    """Heads of queries for each head of keys."""
    return int(getattr(layer, "num_repeats", 1))


def _has_bias(layer: Any) -> bool:
    return bool(getattr(layer, "use_bias", getattr(layer, "_use_bias", False)))


ATTENTION = AttentionRule()
