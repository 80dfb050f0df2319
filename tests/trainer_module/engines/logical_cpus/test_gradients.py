from typing import Any

import driving
import numpy as np
import pytest
import tensorflow as tf
from driving import GRID, MIRRORED, ONE, STAGES, label, rare

from stagecraft.common.errors import UserError

CENTRAL: dict[str, Any] = {"strategy": "central_storage", "replicas": 2, "accumulate": 2}
FIVE: dict[str, Any] = {"strategy": "grid", "stages": 5, "microbatches": 2}


@pytest.mark.parametrize("parallel", [rare(ONE), rare(MIRRORED), STAGES, rare(GRID)], ids=label)
def test_clips_by_the_norm_over_all_stages(parallel):
    # One step of plain SGD without weight decay takes rate * clipped gradient off each weight.
    train = {"momentum": 0.0, "weight_decay": 0.0, "learning_rate": 1.0}
    _, gradients = driving.gradients(driving.make(ONE))
    norm = float(tf.linalg.global_norm([tf.constant(value) for value in gradients.values()]))
    for clip_norm in (norm / 3, norm * 3):
        clipped, _ = tf.clip_by_global_norm(list(map(tf.constant, gradients.values())), clip_norm)
        engine = driving.make(parallel, clip_norm=clip_norm, **train)
        before = engine.weights()
        engine.train(driving.feed(engine), 1)
        for (name, value), gradient in zip(engine.weights().items(), clipped, strict=True):
            # Weights below 1 are rounded by the subtraction, gradients by the order of their sum.
            np.testing.assert_allclose(
                before[name] - value, gradient, rtol=0, atol=2.0**-17, err_msg=name
            )


@pytest.mark.full
def test_accumulation_and_microbatches_compose():
    _, expected = driving.gradients(driving.make(ONE, "drop", batch_size=16), size=16)
    engine = driving.make({**GRID, "accumulate": 2}, "drop", batch_size=16)
    _, found = driving.gradients(engine, size=16)
    driving.assert_same_gradients(found, expected)


@pytest.mark.parametrize(
    ("model", "parallel"),
    [
        rare("penalised", MIRRORED),
        ("penalised", STAGES),
        rare("penalised", {**GRID, "accumulate": 2, "remat": True}),
        rare("looked_up", MIRRORED),
        rare("looked_up", CENTRAL),
        ("looked_up", {**STAGES, "cuts": "quantise,flatten"}),
        rare("looked_up", {**GRID, "accumulate": 2, "remat": True}),
        rare("without_weights", MIRRORED),
        ("without_weights", FIVE),
        ("sharing", {**GRID, "replicas": 1}),
        rare("without_weights", {**FIVE, "stages": 2, "remat": True, "replicas": 2}),
        ("subclassed", MIRRORED),
    ],
    ids=label,
)
def test_any_model_as_on_one_device(model, parallel):
    one, split = driving.make(ONE, model), driving.make(parallel, model)
    loss, expected = driving.gradients(one)
    split_loss, found = driving.gradients(split)
    assert split_loss == pytest.approx(loss, rel=2.0**-21)
    driving.assert_same_gradients(found, expected)
    for engine in (one, split):
        engine.train(driving.feed(engine), 3)
    driving.assert_no_drift(split)
    # Rounding of the gradients, times the learning rate of 0.05, over 3 steps.
    driving.assert_near(split.state(), one.state(), 1e-5)
    assert (
        split.evaluate(driving.dataset(2)).values["accuracy"]
        == one.evaluate(driving.dataset(2)).values["accuracy"]
    )


@pytest.mark.parametrize("parallel", [rare(ONE), CENTRAL, STAGES], ids=label)
def test_constraints_hold(parallel):
    engine = driving.make(parallel, "penalised")
    engine.train(driving.feed(engine), 2)
    norms = np.linalg.norm(engine.weights()["conv1/kernel"].reshape(-1, 6), axis=0)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


@pytest.mark.parametrize(
    "parallel", [rare(ONE), rare(MIRRORED), STAGES, rare({**STAGES, "remat": True})], ids=label
)
def test_what_is_frozen_stays_as_it_is(parallel):
    if "stages" in parallel:
        parallel = {**parallel, "cuts": "drop0,tanh1"}  # the first stage has nothing to train
    engine = driving.make(parallel, "frozen", optimizer="adamw")
    before = engine.weights()
    engine.train(driving.feed(engine), 3)
    frozen = {name for name in before if name.split("/")[0] in ("conv0", "norm0", "norm1")}
    changed = driving.differing(engine.weights(), before)
    assert len(frozen) == 10
    layers = ("conv1", "dense", "logits")
    assert changed == {f"{layer}/{name}" for layer in layers for name in ("kernel", "bias")}


def test_a_subclassed_model_is_not_cut():
    with pytest.raises(UserError, match="subclassed") as caught:
        driving.make(STAGES, "subclassed")
    assert caught.value.setting == "parallel.stages"
    assert caught.value.suggestion == "parallel.stages: 1"
