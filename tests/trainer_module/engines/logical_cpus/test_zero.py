"""Replicas that divide the optimizer slots, against replicas that keep all of them."""

from typing import Any

import driving
import numpy as np
import pytest
from driving import GRID, assert_no_drift, assert_same_bits, rare

STEPS = 3

FLOAT64 = 1e-13
"""The sums over replicas have another order: some units of 2 ** -53 on values of about 1."""

SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw", "optimizer_args": {"amsgrad": True}, "ema_decay": 0.9},
    "sgd": {"clip_norm": 0.1},
    "ftrl": {"optimizer": "ftrl", "weight_decay": 0},
    "nadam": {"optimizer": "nadam", "gradient_noise": 0.1},
    "lion": {"optimizer": "lion", "clip_value": 0.01, "learning_rate_multipliers": {"dense": 0.5}},
    "frozen": {"optimizer": "adam", "weight_decay": 0, "frozen": ["bias"]},
}


def make(zero: int, parallel: dict[str, Any] = GRID, model: str = "norm", **train: Any) -> Any:
    asked = {"precision": "float64", **parallel, "zero": zero}
    return driving.make(asked, model, **{"learning_rate": 0.01, **train})


@pytest.mark.parametrize("name", ["adamw", *map(rare, [*SETTINGS][1:])])
def test_the_training_is_the_same(name):
    states = []
    for zero in (0, 1):
        engine = make(zero, **SETTINGS[name])
        engine.train(driving.feed(engine), STEPS)
        states.append(engine.state())
        assert_no_drift(engine)
    expected, found = states
    driving.assert_near(found, expected, FLOAT64)


def test_each_device_has_a_quarter_of_the_slots():
    sizes = {}
    for zero in (0, 1):
        engine = make(zero, {"strategy": "grid", "replicas": 4}, optimizer="adamw")
        slots: dict[str, int] = {}
        for [stage_replica] in engine._grid:
            for variable in stage_replica.optimizer.variables:
                place = variable.value.device
                slots[place] = slots.get(place, 0) + variable.numpy().nbytes
        sizes[zero] = slots
    assert len(sizes[1]) == 4
    for place, size in sizes[1].items():
        assert size == pytest.approx(sizes[0][place] / 4, rel=0.05)


@pytest.mark.parametrize("replicas", [rare(2), 3, rare(4)])
def test_a_checkpoint_does_not_depend_on_the_division(replicas):
    train = {"optimizer": "adamw", "batch_size": 12}
    parallel = {"strategy": "grid", "replicas": replicas}
    first = make(1, parallel, **train)
    first.train(driving.feed(first, size=12), 2)
    state = first.state()
    second = make(0, driving.ONE, **train)
    second.restore(state)
    assert_same_bits(second.state(), state)
    others = {2: 4, 3: 2, 4: 3}[replicas]
    third = make(1, {"strategy": "grid", "replicas": others}, **train)
    third.restore(state)
    assert_same_bits(third.state(), state)
    snapshot = {name: np.asarray(value) for name, value in third.snapshot().items()}
    assert_same_bits(snapshot, state)
