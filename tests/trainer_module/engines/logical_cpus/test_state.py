from typing import Any

import driving
import numpy as np
import pytest
import tensorflow as tf
from driving import GRID, MIRRORED, ONE, STAGES, label, rare

from stagecraft.trainer_module.data.batch import Batch

GRIDS = [{"strategy": "grid", "stages": stages, "microbatches": 2} for stages in (1, 2, 3, 5)]


@pytest.mark.full
def test_any_topology_goes_on_from_three_stages():
    train = {"optimizer": "adamw", "ema_decay": 0.9, "clip_norm": 0.5, "learning_rate": 1e-3}

    # In float64 what differs is rounding alone, even where Adam divides by it.
    def make(parallel: dict[str, Any]) -> Any:
        return driving.make({**parallel, "precision": "float64"}, "drop", **train)

    engine = make(STAGES)
    engine.train(driving.feed(engine), 3)
    halfway = engine.state()
    engine.train(driving.feed(engine, start=3), 3)
    expected = engine.state()
    for parallel in (ONE, MIRRORED, GRID, {**GRID, "zero": 1}, *GRIDS):
        second = make(parallel)
        second.restore(halfway)
        driving.assert_same_bits(second.state(), halfway)
        second.train(driving.feed(second, start=3), 3)
        assert second.state()["step"] == 6
        driving.assert_near(second.state(), expected, 1e-9)
        driving.assert_no_drift(second)


def test_another_models_state_is_refused():
    engine = driving.make(GRID)
    with pytest.raises(ValueError, match="another model's state: .*norm"):
        engine.restore(driving.make(GRID, "norm").state())


CENTRAL = {"strategy": "central_storage", "replicas": 2}


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), CENTRAL, GRID], ids=label)
def test_a_snapshot_stays_what_it_was(parallel, grid):
    train = {"optimizer": "adamw", "ema_decay": 0.9}
    engine = grid[0] if parallel == GRID else driving.make(parallel, "drop", **train)
    batches = driving.feed(engine)
    engine.train(batches, 1)
    before, snapshot = engine.state(), engine.snapshot()
    engine.train(batches, 3)
    driving.assert_same_bits({k: np.asarray(v) for k, v in snapshot.items()}, before)
    assert not np.array_equal(engine.state()["model/dense/kernel"], before["model/dense/kernel"])


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), rare(CENTRAL), GRID], ids=label)
def test_evaluates_every_example_once(parallel, grid):
    engine = grid[0] if parallel == GRID else driving.make(parallel)
    whole = driving.examples(21)
    places = np.arange(24)
    padded = Batch(*(part[np.minimum(places, 20)] for part in whole))
    padded = padded._replace(weights=(places < 21).astype(np.float32))
    batches = tf.data.Dataset.from_tensor_slices(padded).batch(driving.BATCH, True)
    found = engine.evaluate(batches)
    assert found.examples == 21
    assert found.values["accuracy"] * 21 == pytest.approx(
        round(found.values["accuracy"] * 21), abs=1e-6
    )
