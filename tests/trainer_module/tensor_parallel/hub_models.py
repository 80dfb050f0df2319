"""Small models of KerasHub with random weights, and a batch for each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from stagecraft.trainer_module.models.assemble import name_apart
from stagecraft.trainer_module.models.layers.walk import walk

VOCABULARY, LENGTH, EXAMPLES, CLASSES = 60, 6, 4, 3

_DRAW = np.random.default_rng(0)
_IDS = _DRAW.integers(1, VOCABULARY, (EXAMPLES, LENGTH))
_TOKENS = {"token_ids": _IDS, "padding_mask": np.tril(np.ones((EXAMPLES, LENGTH), "int32"), 3)}
_SEGMENTS = {**_TOKENS, "segment_ids": np.zeros((EXAMPLES, LENGTH), "int32")}
_BOTH = {
    f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in _TOKENS.items()
}
_LABELS = _DRAW.integers(0, CLASSES, EXAMPLES)
_SIZES: dict[str, Any] = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
_HEADS = {"num_heads": 4}
_QUERIES = {"num_query_heads": 4, "num_key_value_heads": 2}
_EXPERTS = {"num_experts": 4, "top_k": 2}


class HubModel(NamedTuple):
    """A model, and what trains it."""

    make: Callable[[], keras.Model]
    x: Any
    y: Any


def backbone(family: str, **settings: Any) -> Any:
    import keras_hub

    return getattr(keras_hub.models, f"{family}Backbone")(**settings)


def _language(family: str, **settings: Any) -> HubModel:
    def make() -> keras.Model:
        import keras_hub

        kind = getattr(keras_hub.models, f"{family}CausalLM")
        return kind(backbone=backbone(family, **{**_SIZES, **settings}), preprocessor=None)

    return HubModel(make, _TOKENS, _IDS)


def _texts(family: str, x: Any = _TOKENS, **settings: Any) -> HubModel:
    of_head = {"hidden_dim": 16} if family == "DebertaV3" else {}

    def make() -> keras.Model:
        import keras_hub

        kind = getattr(keras_hub.models, f"{family}TextClassifier")
        inner = backbone(family, **{**_SIZES, **settings})
        return kind(backbone=inner, num_classes=CLASSES, preprocessor=None, **of_head)

    return HubModel(make, x, _LABELS)


def _both(family: str, **settings: Any) -> HubModel:
    """An encoder and decoder whose embedding gives the logits."""

    def make() -> keras.Model:
        inner = backbone(family, **{**_SIZES, **_HEADS, **settings})
        logits = inner.token_embedding(inner.output["decoder_sequence_output"], reverse=True)
        return keras.Model(inner.input, logits)

    return HubModel(make, _BOTH, _IDS)


def _vision() -> keras.Model:
    import keras_hub

    inner = backbone(
        "ViT",
        image_shape=(16, 16, 3),
        patch_size=4,
        num_layers=2,
        num_heads=4,
        hidden_dim=16,
        mlp_dim=32,
        dropout_rate=0.1,
        attention_dropout=0.1,
    )
    kind = keras_hub.models.ViTImageClassifier
    return kind(backbone=inner, num_classes=CLASSES, preprocessor=None)


_ALIKE = {**_HEADS, "dropout": 0.1, "max_sequence_length": LENGTH}

CHECKED: dict[str, HubModel] = {
    "GPT2": _language("GPT2", **_ALIKE),
    "Gemma": _language("Gemma", num_query_heads=4, num_key_value_heads=1, head_dim=4, dropout=0.1),
    "Llama": _language("Llama", **_QUERIES),
    "Mixtral": _language("Mixtral", **_QUERIES, **_EXPERTS),
    "Bert": _texts("Bert", _SEGMENTS, **_ALIKE),
    "DebertaV3": _texts("DebertaV3", **_ALIKE, bucket_size=4),
    "T5": _both("T5", dropout=0.1),
    "ViT": HubModel(_vision, _DRAW.normal(size=(EXAMPLES, 16, 16, 3)), _LABELS),
}
"""Those that are trained on several devices."""

OTHERS: dict[str, HubModel] = {
    "Bart": _both("Bart", dropout=0.1, max_sequence_length=LENGTH),
    "Bloom": _language("Bloom", num_heads=5, hidden_dim=20, dropout=0.1),
    "Falcon": _language("Falcon", num_attention_heads=4, attention_dropout_rate=0.1),
    "GPTNeoX": _language("GPTNeoX", **_ALIKE, rotary_percentage=0.5),
    "Gemma grouped": _language("Gemma", **_QUERIES, head_dim=4, final_logit_soft_cap=3.0),
    "Llama dropout": _language("Llama", **_QUERIES, dropout=0.1),
    "Mistral": _language("Mistral", **_QUERIES),
    "Phi3": _language("Phi3", **_QUERIES),
    "Qwen": _language("Qwen", **_QUERIES),
    "QwenMoe": _language(
        "QwenMoe",
        **_QUERIES,
        **_EXPERTS,
        moe_intermediate_dim=16,
        shared_expert_intermediate_dim=32,
    ),
    "Albert": _texts("Albert", _SEGMENTS, **_ALIKE, embedding_dim=16),
    "Roberta": _texts("Roberta", **_ALIKE),
}
"""Those whose layers are compared with shards in one process."""


def t5_of_images(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Takes the first pixels for ids."""
    inner = backbone("T5", **_SIZES, **_HEADS, dropout=0.1)
    images = keras.Input(input_shape)
    ids = keras.ops.cast(keras.ops.abs(images[:, :LENGTH, 0, 0]) * 10, "int32")
    both = {name: ids if name.endswith("ids") else ids * 0 + 1 for name in _BOTH}
    hidden = inner(both)["decoder_sequence_output"]
    return keras.Model(images, keras.layers.Dense(num_classes, name="head")(hidden[:, 0]))


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """In the block, KerasHub computes in float64 where it asks for float32 by name."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    own = {name: getattr(keras.ops, name) for name in ("arange", "cast", "convert_to_tensor")}

    def widened(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            wide = [_wide(each) for each in args]
            return function(*wide, **{name: _wide(each) for name, each in kwargs.items()})

        return call

    for name, function in own.items():
        setattr(keras.ops, name, widened(function))
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(keras.ops, name, function)
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def _wide(argument: Any) -> Any:
    return "float64" if isinstance(argument, str) and argument == "float32" else argument


def made(model: HubModel) -> keras.Model:
    """The model, whose softmax layers compute in float64, too."""
    keras.utils.set_random_seed(0)
    built = model.make()
    name_apart(built)  # T5
    for _, layer in walk(built):
        if layer.compute_dtype == "float32":
            layer.dtype_policy = keras.dtype_policies.get("float64")
    return built
