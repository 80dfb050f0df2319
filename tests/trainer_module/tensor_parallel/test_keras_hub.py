"""KerasHub's models: what shards divide of them, and that they compute the same, in float64."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import hub_models
import pytest
from comparing import compare, ways

import stagecraft as sc
from stagecraft.trainer_module.tensor_parallel import model_shards
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards

pytest.importorskip("keras_hub")
pytestmark = pytest.mark.full

MODELS = {**hub_models.CHECKED, **hub_models.OTHERS}

MOST = {"Albert": 0.55, "Bloom": 0.57, "DebertaV3": 0.54, "Gemma": 0.55, "Roberta": 0.54}
"""Share of the parameters on the first device, at most: norms and biases are a large part of such
small models."""

LAST_OF_PAIR = re.compile(
    "(feedforward_output_dense|mlp_output_dense|ffw_linear|4h_to_h|layer_[01]/output_projector|"
    "mlp/dense_2)$"
)


@pytest.fixture(autouse=True)
def _float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 64)
    with hub_models.in_float64():
        yield


def shares(shards: ModelShards, model: Any) -> list[float]:
    """The share of the model's parameters that each shard holds."""
    sizes = [
        sum(math.prod(each.shape) for each in shards.held(model.weights, shard))
        for shard in range(shards.count)
    ]
    return [size / sum(sizes) for size in sizes]


@pytest.mark.parametrize("name", MODELS)
def test_shards_compute_what_one_device_computes(name):
    model = hub_models.made(MODELS[name])
    shards = compare(model, 2, like=MODELS[name].x)
    found = ways(shards)
    attention = [
        way for path, way in found.items() if path.endswith(("attention", "mha", "_layer"))
    ]
    assert {*attention} == {"heads"}
    # Nobody joins what is between the layers of a plain or a gated feed-forward layer.
    pairs = {way for path, way in found.items() if LAST_OF_PAIR.search(path)}
    assert pairs | {"experts"} & {*found.values()} in ({"rows"}, {"experts"}, {"rows", "experts"})
    first, second = shares(shards, model)
    assert first <= MOST.get(name, 0.53)
    assert first + second == 1


def test_a_plan_names_what_stays_whole():
    model = hub_models.made(MODELS["DebertaV3"])
    plan = sc.plan(
        model,
        sc.Parallel(strategy="grid", shards=2),
        "2xT4-16GB",
        input_shape=hub_models.LENGTH,
    )
    (stage,) = plan.stages
    shards = ModelShards([model], 2)
    held = sum(math.prod(each.shape) for each in model.weights if id(each) in shards.splits)
    assert stage.split_parameters == held
    (table,) = (each for each in plan.whole if each.kind == "RelativeEmbedding")
    assert table.parameters == 8 * 16
    assert [each.parameters for each in plan.whole] == sorted(
        (each.parameters for each in plan.whole), reverse=True
    )
    assert table.path in str(plan)
