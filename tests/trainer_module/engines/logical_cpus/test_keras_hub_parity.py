"""KerasHub's models on two shards and on two stages, against one device, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import driving
import hub_models
import keras
import numpy as np
import pytest
from driving import ONE

import stagecraft as sc
from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.tensor_parallel import model_shards

pytest.importorskip("keras_hub")
pytestmark = pytest.mark.slow

FLOAT64 = 1e-11
"""Sums of some dozen terms in another order: some hundred units of 2 ** -53 on values of about 1,
which a second step may enlarge a little."""

TWO: dict[str, dict[str, Any]] = {
    "shards": {"strategy": "grid", "shards": 2},
    "stages": {"strategy": "grid", "stages": 2},
}


FLOAT32 = 1e-6
"""The same with 2 ** -24."""


@pytest.fixture(autouse=True)
def _small_layers_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_shards, "LEAST_PARAMETERS", 64)


@pytest.fixture
def float64() -> Iterator[None]:
    with hub_models.in_float64():
        yield


def trained(name: str, parallel: dict[str, Any] | None = None, **compiled: Any) -> Any:
    """A model after two steps, and its losses; one device computes eagerly, which is faster."""
    given = hub_models.CHECKED[name]
    model = hub_models.made(given)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    sgd.build(model.trainable_variables)  # or TensorFlow traces the first step twice
    eager = parallel is None
    model.compile(sgd, loss, jit_compile=False, run_eagerly=eager, **compiled)
    if parallel is not None:
        sc.parallelize(model, sc.Parallel(**parallel))
    return model, [model.train_on_batch(given.x, given.y) for _ in range(2)]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", hub_models.CHECKED)
def test_a_model_trains_as_on_one_device(name):
    model, expected = trained(name)
    for shown, parallel in TWO.items():
        other, found = trained(name, parallel)
        np.testing.assert_allclose(found, expected, rtol=0, atol=FLOAT64, err_msg=shown)
        for one, two in zip(model.variables, other.variables, strict=True):
            np.testing.assert_allclose(
                two.numpy(), one.numpy(), rtol=0, atol=FLOAT64, err_msg=f"{shown} {one.path}"
            )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_a_parallel_model_generates_what_one_device_generates(name):
    prompt = {key: value[:, :3] for key, value in hub_models.CHECKED[name].x.items()}
    padded = {key: np.pad(value, [(0, 0), (0, 3)]) for key, value in prompt.items()}
    texts = [
        trained(name, parallel, sampler="greedy")[0].generate(padded, stop_token_ids=None)
        for parallel in (None, *TWO.values())
    ]
    expected, *others = texts
    assert (expected["token_ids"][:, 3:] != 0).any()
    for found in others:
        np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])


@pytest.mark.full
def test_weights_with_one_path_are_two_in_a_checkpoint():
    """T5's, which a restore on another topology finds."""
    train = {"optimizer": "sgd", "learning_rate": 0.1}

    def make(parallel: dict[str, Any]) -> Any:
        return driving.make(dict(parallel), "hub_models:t5_of_images", **train)

    engine = make(ONE)
    engine.train(driving.feed(engine), 1)
    halfway = engine.state()
    names = [name for name in halfway if name.startswith("model/") and "self_attention/emb" in name]
    assert len(names) == len({halfway[name].tobytes() for name in names}) == 2
    engine.train(driving.feed(engine, start=1), 1)
    expected = engine.state()
    for parallel in TWO.values():
        other = make(parallel)
        other.restore(halfway)
        driving.assert_same_bits(other.state(), halfway)
        other.train(driving.feed(other, start=1), 1)
        found = other.state()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=0, atol=FLOAT32, err_msg=key)


@pytest.mark.usefixtures("float64")
def test_a_layer_that_only_calls_its_layers_is_cut_inside():
    model = hub_models.made(hub_models.CHECKED["ViT"])
    points = [point.layer for point in partition.cut_points(model)]
    # KerasHub 0.21 wrote the names without an s.
    first, second = (each for each in points if "former_block" in each)
    assert (first[-2:], second[-2:]) == ("_1", "_2")
    stages = partition.split(model, [first])
    assert [len(stage.trainable_variables) for stage in stages] == [3 + 1 + 16, 16 + 2 + 2]
    assert model_graph.last_layers(model, ["vit_encoder"]) == ["ln"]
    x = hub_models.CHECKED["ViT"].x
    np.testing.assert_array_equal(stages[1](stages[0](x)), model(x))
