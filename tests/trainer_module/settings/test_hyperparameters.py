"""Values of a search in place of settings."""

import pytest

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.settings import TrainingSettings, hyperparameters


def test_values_replace_settings():
    flat = TrainingSettings.model_validate({"train": {"steps": 3}}).flat()
    config = {"space": [], "values": {"train.epochs": 2.0, "parallel.stages": 2, "units": 64}}
    found = hyperparameters.override(flat, config)
    assert (found["train_epochs"], found["parallel_stages"]) == (2.0, 2)
    assert "train_steps" not in found and "units" not in found
    assert flat["train_steps"] == 3 and hyperparameters.override(flat, None) == flat


def test_all_settings_are_known():
    flat = TrainingSettings().flat()
    assert {name.replace(".", "_", 1) for name in hyperparameters.known()} >= flat.keys()


@pytest.mark.parametrize(
    ("name", "use"),
    [("parallel.stagse", "parallel.stages"), ("a.b", "train.learning_rate")],
)
def test_unknown_names(name, use):
    with pytest.raises(SettingError) as error:
        hyperparameters.override({}, {"values": {name: 1}})
    assert (error.value.setting, error.value.value) == ("hyperparameters", name)
    assert use in error.value.suggestion
