"""The Evaluator blesses no untrained model of a preset."""

import hub_presets
import pytest
from support import run

from stagecraft.pipeline.settings import load, presets

UNTRAINED = (
    "data.sample_train=400",
    "data.sample_test=200",
    "train.steps=1",
    "train.learning_rate=1e-9",
    "evaluate.better_than_constant=false",
)


@pytest.mark.full
@pytest.mark.parametrize("preset", [name for name in presets() if "cifar" not in name])
def test_a_threshold_refuses_it(preset, tmp_path):
    hub_presets.skip_without(load(preset))
    done = run(tmp_path, "--config", preset, settings=UNTRAINED)
    assert done.result["metrics"]["loss"] > 0
    assert not done.result["blessed"] and done.result["pushed"] is None
