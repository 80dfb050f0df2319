"""Models of KerasHub, as their users take them, held against Keras on one device.

``pip install --no-deps keras-hub==0.21.1 kagglehub==0.3.12 tensorflow-text==2.16.1`` gives them.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import stagecraft as sc
from stagecraft import pickles
from stagecraft.trainer_module.tensor_parallel import model_shards

pytestmark = pytest.mark.usefixtures("in_float64")

hub = pytest.importorskip("keras_hub")

DRAW = np.random.default_rng(0)
IDS = DRAW.integers(1, 50, (6, 8))
TOKENS = {"token_ids": IDS, "padding_mask": np.ones((6, 8), "int32")}
SEGMENTS = {**TOKENS, "segment_ids": np.zeros((6, 8), "int32")}
BOTH = {
    f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in TOKENS.items()
}
LABELS = DRAW.integers(0, 3, 6)
IMAGES = DRAW.normal(size=(6, 32, 32, 3))
SMALL: dict[str, Any] = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
QUERIES = {"num_query_heads": 2, "num_key_value_heads": 1}
POSITIONS = {"num_heads": 2, "max_sequence_length": 8}


def task(kind: str, backbone: Any, preprocessor: Any = None, **more: Any) -> keras.Model:
    return getattr(hub.models, kind)(backbone=backbone, preprocessor=preprocessor, **more)


def backbone(kind: str, **settings: Any) -> Any:
    return getattr(hub.models, f"{kind}Backbone")(**settings)


def with_head(kind: str, **settings: Any) -> keras.Model:
    """An encoder and decoder with a layer of scores."""
    inner = backbone(kind, **settings)
    hidden = inner.output["decoder_sequence_output"]
    return keras.Model(inner.input, keras.layers.Dense(50)(hidden))


def vision(preprocessor: Any) -> keras.Model:
    inner = backbone(
        "ViT",
        image_shape=(32, 32, 3),
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
    )
    return task("ViTImageClassifier", inner, preprocessor, num_classes=3)


def res_net() -> keras.Model:
    settings = {
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [3],
        "stackwise_num_filters": [64, 64],
        "stackwise_num_blocks": [1, 1],
        "stackwise_num_strides": [1, 2],
        "block_type": "basic_block",
        "use_pre_activation": True,
        "image_shape": (32, 32, 3),
    }
    return task("ResNetImageClassifier", backbone("ResNet", **settings), num_classes=3)


def seg_former() -> keras.Model:
    encoder = backbone(
        "MiT",
        image_shape=(32, 32, 3),
        layerwise_depths=[1, 1],
        num_layers=2,
        layerwise_num_heads=[1, 2],
        layerwise_sr_ratios=[2, 1],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7, 3],
        layerwise_strides=[4, 2],
        hidden_dims=[8, 16],
    )
    inner = backbone("SegFormer", image_encoder=encoder, projection_filters=16)
    return task("SegFormerImageSegmenter", inner, num_classes=3)


MODELS: dict[str, tuple[Any, Any, Any]] = {
    "GPT2CausalLM": (
        lambda: task("GPT2CausalLM", backbone("GPT2", **SMALL, **POSITIONS, dropout=0.1)),
        TOKENS,
        IDS,
    ),
    "GemmaCausalLM": (
        lambda: task("GemmaCausalLM", backbone("Gemma", **SMALL, **QUERIES, head_dim=8)),
        TOKENS,
        IDS,
    ),
    "LlamaCausalLM": (
        lambda: task("LlamaCausalLM", backbone("Llama", **SMALL, **QUERIES)),
        TOKENS,
        IDS,
    ),
    "BertTextClassifier": (
        lambda: task("BertTextClassifier", backbone("Bert", **SMALL, **POSITIONS), num_classes=3),
        SEGMENTS,
        LABELS,
    ),
    "DebertaV3TextClassifier": (
        lambda: task(
            "DebertaV3TextClassifier",
            backbone("DebertaV3", **SMALL, **POSITIONS, bucket_size=4),
            num_classes=3,
            hidden_dim=16,
        ),
        TOKENS,
        LABELS,
    ),
    "ViTImageClassifier": (lambda: vision(None), IMAGES, LABELS),
    "ResNetImageClassifier": (res_net, IMAGES, LABELS),
    "SegFormerImageSegmenter": (seg_former, IMAGES, DRAW.integers(0, 3, (6, 32, 32))),
    "MixtralCausalLM": (
        lambda: task(
            "MixtralCausalLM",
            backbone("Mixtral", **SMALL, **QUERIES, num_experts=4, top_k=2),
        ),
        TOKENS,
        IDS,
    ),
    "Bart": (lambda: with_head("Bart", **SMALL, **POSITIONS), BOTH, IDS),
    "T5": (lambda: with_head("T5", **SMALL, num_heads=2), BOTH, IDS),
}

TOPOLOGIES = {
    "mirrored": {"strategy": "mirrored", "replicas": 2},
    "stages": {"strategy": "grid", "stages": 2},
    "grid": {"strategy": "grid", "stages": 2, "microbatches": 2},
    "shards": {"strategy": "grid", "shards": 2},
}


def trained(name: str, parallel: sc.Parallel | None = None, *, copied: bool = False) -> list[Any]:
    """Losses, weights and outputs of three steps."""
    make, x, y = MODELS[name]
    if name == "MixtralCausalLM":  # its experts fail in float64
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    keras.utils.set_random_seed(0)
    model = make()
    if copied:
        model = pickles.loads(pickles.dumps(model))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, metrics=[])
    if parallel is not None:
        sc.parallelize(model, parallel)
    losses = [model.train_on_batch(x, y) for _ in range(3)]
    return [np.array(losses), *model.get_weights(), model.predict(x, verbose=0)]


FLOAT32 = ("GemmaCausalLM", "LlamaCausalLM", "MixtralCausalLM")
"""Their norms compute in float32, whatever the dtype policy is."""


OF_BATCH = ("ResNetImageClassifier", "SegFormerImageSegmenter", "MixtralCausalLM")
"""They compute with statistics of the batch: batch normalization, and the balance of experts."""


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_on_one_device(name, monkeypatch):
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 64)
    expected = trained(name)
    found = {
        shown: trained(name, sc.Parallel(**settings))
        for shown, settings in TOPOLOGIES.items()
        if name not in OF_BATCH or shown in ("stages", "shards")
    }
    found["copy"] = trained(name, copied=True)
    for shown, values in found.items():
        for one, other in zip(expected, values, strict=True):
            rounding = 1e-5 if name in FLOAT32 else 1e-9
            np.testing.assert_allclose(other, one, rtol=0, atol=rounding, err_msg=shown)


@pytest.mark.full
@pytest.mark.parametrize("topology", ["mirrored", "grid"])
def test_a_preprocessor_is_mapped_over_the_data(topology):
    pytest.importorskip("tensorflow_text")

    def fitted(parallel: sc.Parallel | None) -> list[Any]:
        keras.utils.set_random_seed(0)
        converter = hub.layers.ViTImageConverter(image_size=(32, 32), scale=1 / 255)
        model = vision(hub.models.ViTImageClassifierPreprocessor(converter))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, metrics=["accuracy"])
        if parallel is not None:
            sc.parallelize(model, parallel)
        pictures = np.random.default_rng(1).integers(0, 256, (6, 40, 48, 3), np.uint8)
        history = model.fit(pictures, LABELS, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return [*history.history.values(), *model.get_weights(), model.predict(pictures, verbose=0)]

    expected, found = fitted(None), fitted(sc.Parallel(**TOPOLOGIES[topology]))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-9)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_gpt2_small_on_four_stages_and_eight_microbatches():
    """124 million random weights, in float32."""
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    draw = np.random.default_rng(0)
    ids = draw.integers(50257, size=(5, 8, 65))
    found = []
    for parallel in (None, sc.Parallel(strategy="grid", stages=4, microbatches=8)):
        keras.utils.set_random_seed(0)
        inner = backbone(
            "GPT2",
            vocabulary_size=50257,
            num_layers=12,
            num_heads=12,
            hidden_dim=768,
            intermediate_dim=3072,
            dropout=0.0,
            max_sequence_length=64,
        )
        model = task("GPT2CausalLM", inner)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=[], jit_compile=False)
        if parallel is not None:
            sc.parallelize(model, parallel)
        losses = []
        for batch in ids:
            tokens = {"token_ids": batch[:, :-1], "padding_mask": np.ones((8, 64), "int32")}
            losses.append(model.train_on_batch(tokens, batch[:, 1:]))
        found.append((losses, model.get_weights()))
        del model, inner
    (one, expected), (other, weights) = found
    np.testing.assert_allclose(other, one, rtol=1e-5)
    for left, right in zip(expected, weights, strict=True):
        np.testing.assert_allclose(right, left, rtol=0, atol=1e-5)
