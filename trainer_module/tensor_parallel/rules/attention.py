"""Attention: by heads. Each shard projects, attends and projects back with its heads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.tensor_parallel.call import LayerCall, below
from stagecraft.trainer_module.tensor_parallel.parts import SlicesRule
from stagecraft.trainer_module.tensor_parallel.rule import adapted
from stagecraft.trainer_module.tensor_parallel.rules.einsum_dense import letters
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even

_QUERIES = frozenset({"query", "query_dense", "query_proj", "query_projector", "query_key_value"})
_KEYS = frozenset(
    f"{name}{end}" for name in ("key", "value") for end in ("", "_dense", "_proj", "_projector")
)
_OUTPUTS = frozenset({"attention_output", "output_dense", "out_proj", "output_projector"})
"""Names of the projections inside: of queries, of keys and values, and of the output."""

_COUNTS = ("num_query_heads", "_num_query_heads", "num_heads")
_KEY_COUNTS = ("num_key_value_heads", "_num_key_value_heads")
_REPEATS = ("num_key_value_groups", "_num_key_value_groups", "num_repeats")
"""Heads of queries for each head of keys."""
_WIDTHS = ("hidden_dim", "inner_dim")
"""Heads times the size of a head."""

_DROP_OUTPUTS = frozenset(
    {
        *("LlamaAttention", "CachedMistralAttention", "CachedMixtralAttention"),
        *("Phi3Attention", "QwenAttention", "QwenMoeAttention"),
    }
)
"""Classes that drop what the heads put out, ``[batch, length, heads, size]``, not the scores."""


class _Heads(NamedTuple):
    """Each shard's heads."""

    queries: tuple[int, ...]
    keys: tuple[int, ...] | None
    """Absent (None) if all shards have the only head of keys and values."""


class AttentionRule(SlicesRule):
    """Megatron-LM, section 3: one sum, after the last projection.

    If there is a single head of keys and values for all queries, as in multi-query attention
    (Shazeer 2019), its projections stay whole, and each shard has a copy (Pope et al. 2022,
    "Efficiently scaling transformer inference", section 3.3).
    """

    name = "attention"
    description = "attention of Keras and KerasHub: heads"
    layers = (
        *("MultiHeadAttention", "GroupQueryAttention"),
        *(
            f"keras_hub:{name}"
            for name in (
                *("CachedMultiHeadAttention", "WhisperCachedMultiHeadAttention"),
                *("CLIPMultiHeadAttention", "CachedGemmaAttention", "CachedGemma3Attention"),
                *("Gemma3VisionAttention", "PaliGemmaVitAttention", "GPTNeoXAttention"),
                *("BloomAttention", "FalconAttention", "DisentangledSelfAttention"),
                *("T5MultiHeadAttention", *sorted(_DROP_OUTPUTS)),
            )
        ),
    )

    def obstacle(self, layer: Any, count: int) -> str:
        """Fewer heads of keys and values than shards, unless it is one; adapters, and the like."""
        queries, keys = _counts(layer)
        if queries < count:
            return f"has {queries} heads"
        if 1 < keys < count:
            return f"has {keys} heads of keys and values"
        inner = [each for _, each in walk(layer)]
        for each in inner:
            package = type(each).__module__.partition(".")[0]
            if package not in ("keras", "keras_hub"):  # a user has put it there
                return f"has an inner layer {each.name}, which is not Keras's"
        problem = next(filter(None, map(adapted, inner)), "")
        if problem:
            return problem
        # Keras regularizes the outputs of the projections, not that of the layer.
        if any(each.activity_regularizer is not None for each in inner):
            return "has an activity regularizer"
        return ""

    def choose(self, call: LayerCall) -> Way | None:
        """Heads of keys and values, with the heads of queries that attend to them."""
        layer = call.layer
        if len(call.inputs.shape) != 3:  # the heads are another axis of the scores
            return None
        for name in ("attention_mask", "mask"):
            mask = call.arguments.get(name)
            if mask is not None and len(mask.shape) > 3 and mask.shape[1] != 1:  # one for each head
                return None
        return Way("heads", dict(_splits(layer, _heads(layer, call.group.count))))

    def run(self, call: LayerCall, way: Way) -> Any:
        """Calls the layer for each shard; in a generation, which has a cache, once."""
        if any(call.arguments.get(name) is not None for name in ("cache", "past_key_value")):
            return call.own(**call.arguments)
        outputs = super().run(call, way)
        mask = getattr(call.arguments.get("query"), "_keras_mask", None)
        if mask is not None:
            tf.nest.flatten(outputs)[0]._keras_mask = mask
        return outputs

    def argument(self, call: LayerCall, way: Way, name: str) -> Sequence[tf.Tensor]:
        """Slices of biases of the scores, whose axis 1 is that of the heads; else copies."""
        if name not in ("alibi", "position_bias"):
            return super().argument(call, way, name)
        heads = _heads(call.layer, call.group.count).queries
        return call.group.slices(call.arguments[name], heads, 1)

    def changes(self, layer: Any, way: Way, shard: int) -> list[tuple[Any, Mapping[str, Any]]]:
        """The numbers of a shard's heads, and what follows from them."""
        heads = _heads(layer, _shards(way))
        before, _ = _counts(layer)
        queries, keys = heads.queries[shard], 1 if heads.keys is None else heads.keys[shard]
        values = {
            **dict.fromkeys(_COUNTS, queries),
            **dict.fromkeys(_KEY_COUNTS, keys),
            **dict.fromkeys(_REPEATS, queries // keys),
        }
        values |= {n: vars(layer)[n] // before * queries for n in _WIDTHS if n in vars(layer)}
        own = {name: value for name, value in values.items() if name in vars(layer)}
        # A Dense checks the width of its input.
        outputs = [
            (each, {"_input_spec": None}) for _, each in walk(layer) if each.name in _OUTPUTS
        ]
        return [(layer, own), *outputs, *_slopes(layer, Split(0, heads.queries), shard)]

    def of_first(self, layer: Any) -> Sequence[str]:
        """The bias of the output."""
        return [f"{each.name}/bias" for _, each in walk(layer) if each.name in _OUTPUTS]

    def drawn(self, layer: Any, way: Way) -> Callable[[Any], Split | None]:
        """Scores ``[batch, heads, …]``, outputs ``[batch, length, heads, size]``.

        The scores of Gemma are ``[batch, heads of keys, queries for each, …]``.
        """
        heads = _heads(layer, _shards(way))
        is_output = any(each.__name__ in _DROP_OUTPUTS for each in type(layer).__mro__)

        def split(inputs: Any) -> Split | None:
            if len(inputs.shape) < 4:
                return None
            if len(inputs.shape) > 4:
                return Split(2, heads.queries) if heads.keys is None else Split(1, heads.keys)
            return Split(2 if is_output else 1, heads.queries)

        return split

    def outputs(self, call: LayerCall, way: Way, place: int, pieces: Sequence[tf.Tensor]) -> Any:
        """The sum of the outputs; the others are scores or biases, ``[batch, heads, …]``."""
        return call.group.join(pieces, axis=1) if place else call.group.total(pieces)


def _counts(layer: Any) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    queries, keys = (
        [getattr(layer, name) for name in names if getattr(layer, name, None) is not None]
        for names in (_COUNTS, _KEY_COUNTS)
    )
    return int(queries[0]), int((keys or queries)[0])


def _heads(layer: Any, count: int) -> _Heads:
    queries, keys = _counts(layer)
    if keys == 1:
        return _Heads(even(queries, count), None)
    sizes = even(keys, count)
    return _Heads(tuple(queries // keys * size for size in sizes), sizes)


def _shards(way: Way) -> int:
    return len(next(iter(way.splits.values())).sizes)


def _splits(layer: Any, heads: _Heads) -> Iterator[tuple[str, Split]]:
    """The slices of the weights."""
    for each in layer._flatten_layers(include_self=False, recursive=False):
        sizes = heads.keys if each.name in _KEYS else heads.queries
        if each.name not in _QUERIES | _KEYS | _OUTPUTS or sizes is None:
            continue
        for name, axis in _axes(each):
            variable = getattr(each, name)
            if variable is not None:
                size = variable.shape[axis] // sum(sizes)
                yield below(layer, variable), Split(axis, tuple(size * own for own in sizes))
    bias = getattr(layer, "relative_attention_bias", None)  # of T5: [buckets, heads]
    if bias is not None:
        yield below(layer, bias), Split(1, heads.queries)


def _axes(projection: Any) -> Iterator[tuple[str, int]]:
    """The axes of heads in the weights of a projection, or of heads times their size."""
    is_output = projection.name in _OUTPUTS
    if isinstance(projection, keras.layers.Dense):
        yield "kernel", 0 if is_output else 1
    else:
        given, kernel, output = letters(projection)
        letter = given[2] if is_output else output[2]  # [batch, length, heads, …]
        yield "kernel", kernel.index(letter)
    if not is_output:
        yield "bias", 0


def _slopes(layer: Any, split: Split, shard: int) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """ALiBi inside: it reads the number of heads from the scores (Press et al. 2021)."""
    for _, each in walk(layer):
        own = getattr(each, "_get_slopes", None)
        if own is not None:
            begin = list(itertools.accumulate(split.sizes, initial=0))[shard]
            slopes = own(sum(split.sizes))[begin : begin + split.sizes[shard]]
            yield each, {"_get_slopes": lambda _, slopes=slopes: slopes}


ATTENTION = AttentionRule()
