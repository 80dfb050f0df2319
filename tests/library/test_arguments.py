"""Arguments of a call as settings."""

from __future__ import annotations

from typing import Any

import cloudpickle
import keras
import pytest

import stagecraft as sc
from stagecraft import training
from stagecraft.common import user_objects
from stagecraft.common.errors import SettingError, UserError


def collected(**more: Any) -> dict[str, Any]:
    none = {"parallel": None, "model": None, "optimizer": None, "loss": None}
    return training.collect({"parallel_stages": 4, "train_steps": 3}, **(none | more)).flat


@pytest.mark.parametrize(
    ("optimizer", "rate", "decay"),
    [("adam", 1e-3, 0.0), ("SGD", 0.01, 0.0), ("adamw", 1e-3, 4e-3), ("lion", 1e-3, 0.0)],
)
def test_names_of_optimizers_have_the_rates_of_keras(optimizer, rate, decay):
    flat = collected(optimizer=optimizer)
    found = (flat["train_learning_rate"], flat["train_weight_decay"], flat["train_schedule"])
    assert found == (rate, decay, "constant") and flat["train_momentum"] == 0
    assert collected(optimizer=optimizer, learning_rate=3.0)["train_learning_rate"] == 3.0


def test_muon_by_name_is_muon_by_default():
    flat = collected(optimizer="muon")
    assert flat["train_learning_rate"] == 0.02 == pytest.approx(float(sc.Muon().learning_rate))
    assert (flat["train_weight_decay"], flat["train_momentum"]) == (0, 0.9)
    assert sc.Muon().weight_decay is None
    assert sc.Muon().get_config()["others"]["config"]["momentum"] == 0.9


def test_an_optimizer_is_made_again_with_its_configuration():
    flat = collected(optimizer=keras.optimizers.Adam(0.5, beta_1=0.7))
    found = cloudpickle.loads(cloudpickle.dumps(user_objects.load("", flat["train_optimizer"])))()
    assert (float(found.learning_rate), found.beta_1) == (0.5, 0.7)
    assert flat["train_learning_rate"] == 0.5
    same = collected(optimizer=keras.optimizers.Adam(0.5, beta_1=0.7))
    other = collected(optimizer=keras.optimizers.Adam(0.5, beta_1=0.8))
    assert same["train_optimizer"] == flat["train_optimizer"] != other["train_optimizer"]


def test_a_topology_replaces_that_of_the_settings():
    flat = collected(parallel=sc.Parallel(strategy="mirrored", replicas=2), epochs=2)
    assert (flat["parallel_stages"], flat["parallel_replicas"]) == (1, 2)
    assert flat["train_epochs"] == 2 and "train_steps" not in flat
    assert collected()["parallel_stages"] == 4


def test_refusals():
    with pytest.raises(SettingError) as error:
        collected(model=3)
    assert error.value.setting == "train.model"
    with pytest.raises(TypeError, match="batch_size"):
        collected(batchsize=3)
    with pytest.raises(UserError) as invalid:
        training.Arguments({"train_batch_size": "many"}).settings()
    assert invalid.value.setting == "train.batch_size"
