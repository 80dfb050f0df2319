"""KerasHub's models: what shards divide of them, and that they compute the same, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import hub_models
import pytest
from comparing import compare

from stagecraft.trainer_module.tensor_parallel import model_shards
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards

pytest.importorskip("keras_hub")
pytestmark = pytest.mark.full

MODELS = {**hub_models.CHECKED, **hub_models.OTHERS}

BY_HEADS = {
    "ViT": "vit_encoder/tranformer_block_1/mha",
    "T5": "transformer_decoder_layer_1/cross_attention",
}
"""Path of an attention layer, without that of the backbone."""


@pytest.fixture(autouse=True)
def _float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 64)
    with hub_models.in_float64():
        yield


def shares(shards: ModelShards, model: Any) -> list[float]:
    """The share of the model's parameters that each shard holds."""
    sizes = [
        sum(math.prod(each.shape) for each in shards.held(model.variables, shard))
        for shard in range(shards.count)
    ]
    return [size / sum(sizes) for size in sizes]


@pytest.mark.parametrize("name", MODELS)
def test_shards_compute_what_one_device_computes(name):
    model = hub_models.made(MODELS[name])
    shards = compare(model, 2, like=MODELS[name].x)
    print(name, shares(shards, model), shards.reasons, shards.whole(model))
    ways = {path: way.name for path, way in shards.ways().items()}
    print({p: w for p, w in ways.items()})
