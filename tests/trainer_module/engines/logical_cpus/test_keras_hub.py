"""Models of KerasHub, as their users take them, held against Keras on one device.

``pip install --no-deps keras-hub==0.21.1 kagglehub==0.3.12`` gives them.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import stagecraft as sc
from stagecraft import pickles

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


def task(kind: str, backbone: Any, **more: Any) -> keras.Model:
    return getattr(hub.models, kind)(backbone=backbone, preprocessor=None, **more)


def backbone(kind: str, **settings: Any) -> Any:
    return getattr(hub.models, f"{kind}Backbone")(**settings)


def with_head(kind: str, **settings: Any) -> keras.Model:
    """An encoder and decoder with a layer of scores."""
    inner = backbone(kind, **settings)
    hidden = inner.output["decoder_sequence_output"]
    return keras.Model(inner.input, keras.layers.Dense(50)(hidden))


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
    "ViTImageClassifier": (
        lambda: task(
            "ViTImageClassifier",
            backbone(
                "ViT",
                image_shape=(32, 32, 3),
                patch_size=8,
                num_layers=2,
                num_heads=2,
                hidden_dim=16,
                mlp_dim=32,
            ),
            num_classes=3,
        ),
        IMAGES,
        LABELS,
    ),
    "ResNetImageClassifier": (res_net, IMAGES, LABELS),
    "Bart": (lambda: with_head("Bart", **SMALL, **POSITIONS), BOTH, IDS),
    "T5": (lambda: with_head("T5", **SMALL, num_heads=2), BOTH, IDS),
}

TOPOLOGIES = {
    "mirrored": {"strategy": "mirrored", "replicas": 2},
    "stages": {"strategy": "grid", "stages": 2},
    "grid": {"strategy": "grid", "stages": 2, "microbatches": 2},
}


def trained(name: str, parallel: sc.Parallel | None = None, *, copied: bool = False) -> list[Any]:
    """Losses, weights and outputs of three steps."""
    make, x, y = MODELS[name]
    keras.utils.set_random_seed(0)
    model = make()
    if copied:
        model = pickles.loads(pickles.dumps(model))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss)
    if parallel is not None:
        sc.parallelize(model, parallel)
    losses = [model.train_on_batch(x, y) for _ in range(3)]
    return [np.array(losses), *model.get_weights(), model.predict(x, verbose=0)]


FLOAT32 = ("GemmaCausalLM", "LlamaCausalLM")
"""Their norms compute in float32, whatever the dtype policy is."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_on_one_device(name):
    expected = trained(name)
    found = {
        shown: trained(name, sc.Parallel(**settings))
        for shown, settings in TOPOLOGIES.items()
        if name != "ResNetImageClassifier" or shown == "stages"  # batch normalization
    }
    found["copy"] = trained(name, copied=True)
    for shown, values in found.items():
        for one, other in zip(expected, values, strict=True):
            rounding = 1e-5 if name in FLOAT32 else 1e-9
            np.testing.assert_allclose(other, one, rtol=0, atol=rounding, err_msg=shown)
