from collections.abc import Mapping
from typing import Any

import driving
import pytest
import tensorflow as tf
from driving import MIRRORED, ONE, STAGES, label, rare

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.settings import TrainingSettings

FOUR: dict[str, Any] = {**STAGES, "microbatches": 4}
TWO_BY_TWO: dict[str, Any] = {
    "strategy": "grid",
    "replicas": 2,
    "stages": 2,
    "microbatches": 2,
}
EVERYTHING = {"optimizer": "adamw", "clip_norm": 0.5, "ema_decay": 0.9, "learning_rate": 0.01}
TASKS = {
    "u_net": "PIXELS",
    "towers": "TOWERS",
    "Whole": "TOWERS",
    "language_model": "TOKENS",
    "causal_lm": "TOKENS",
}


def make(parallel: Mapping[str, Any], model: str, **train: Any) -> Engine:
    given = {"virtual_devices": 6, "precision": "float64", **parallel}
    settings = TrainingSettings.model_validate(
        {
            "task": {"name": f"nested:{TASKS[model]}"},
            "train": {
                "model": f"nested:{model}",
                "batch_size": 8,
                "schedule": "constant",
                "learning_rate": 0.05,
                **train,
            },
            "parallel": given,
        }
    )
    return driving.engine_of(settings, {}, task=settings.task.found)


def dataset(engine: Engine, batches: int = driving.STEPS) -> tf.data.Dataset:
    examples = engine.objective.task.examples(8 * batches)
    return tf.data.Dataset.from_tensor_slices(examples).batch(8, True)


@pytest.mark.parametrize(
    ("model", "parallel", "train"),
    [
        ("u_net", {**FOUR, "cuts": "down1,grow1"}, {}),
        rare("u_net", FOUR, EVERYTHING),
        rare("u_net", {**FOUR, "accumulate": 2, "microbatches": 2, "remat": True}, EVERYTHING),
        rare("u_net", {**STAGES, "jit": True}, EVERYTHING),
        rare("u_net", {**ONE, "remat": True}, EVERYTHING),
        rare("towers", TWO_BY_TWO, EVERYTHING),
        rare("towers", {**TWO_BY_TWO, "cuts": "class", "remat": True, "jit": True}, {}),
        rare("towers", {**TWO_BY_TWO, "cuts": "flat"}, {}),
        ("Whole", MIRRORED, {}),
        ("language_model", {**STAGES, "replicas": 2}, EVERYTHING),
        rare("language_model", {**STAGES, "accumulate": 2, "remat": True}, EVERYTHING),
        rare("language_model", {**ONE, "remat": True}, {}),
        ("causal_lm", STAGES, EVERYTHING),
        rare("causal_lm", {**STAGES, "remat": True, "cuts": "block0,block1"}, EVERYTHING),
        rare("causal_lm", {**ONE, "remat": True}, {}),
    ],
    ids=label,
)
def test_as_on_one_device(model, parallel, train):
    one, split = make(ONE, model, **train), make(parallel, model, **train)
    batches = [iter(engine.feed(dataset(engine))) for engine in (one, split)]
    loss, expected = one.gradients(next(batches[0]))
    split_loss, found = split.gradients(next(batches[1]))
    assert split_loss == pytest.approx(loss, abs=1e-10)
    driving.assert_near(found, expected, 1e-10)
    metrics = [engine.train(feed, 3) for engine, feed in zip((one, split), batches, strict=True)]
    assert metrics[0].loss == pytest.approx(metrics[1].loss, abs=1e-10)
    driving.assert_no_drift(split)
    driving.assert_near(split.state(), one.state(), 1e-10)
    driving.assert_near(split.weights(), one.weights(), 1e-10)
    evaluated, also = (engine.evaluate(dataset(engine, 2)) for engine in (one, split))
    assert also.loss == pytest.approx(evaluated.loss, abs=1e-10)
    assert also.values == pytest.approx(evaluated.values, abs=1e-10)
    split.restore(one.state())
    driving.assert_same_bits(split.state(), one.state())


def test_a_tied_weight_is_traffic():
    engine = make({**STAGES, "replicas": 2}, "language_model")
    (tied,) = engine.plan.tied
    assert (tied.path, tied.stages, tied.bytes) == ("embedding/embeddings", [0, 2], 2 * 8 * 11 * 4)
    first, _, last = engine.plan.stages
    assert engine.plan.cuts[0] != "begin" or first.layers == 2
    held = [row[2].weights for row in engine._grid]
    assert not any(weight.path == "embedding/embeddings" for row in held for weight in row)
    assert last.parameters >= 11 * 4


@pytest.mark.full
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(precision):
    for model, parallel in (("u_net", FOUR), ("language_model", STAGES)):
        engine = make({**parallel, "precision": precision}, model, ema_decay=0.9)
        first = engine.train(engine.feed(dataset(engine, 1)), 1).loss
        last = [engine.train(engine.feed(dataset(engine, 1)), 1).loss for _ in range(8)][-1]
        assert last < first
        driving.assert_no_drift(engine)


def test_a_users_task_is_found_by_its_module():
    import nested

    assert registries.task("nested:TOWERS") is nested.TOWERS
    assert "nested" in registries.code({"task_name": "nested:TOWERS"})


@pytest.mark.parametrize("name", ["nested:NOTHING", "nowhere:TASK", "nested:towers", "nested:a b"])
def test_tasks_that_are_none(name):
    with pytest.raises(SettingError) as caught:
        registries.task(name)
    assert (caught.value.setting, caught.value.value) == ("task.name", name)
