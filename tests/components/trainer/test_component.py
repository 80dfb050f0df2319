"""The component's interface: every setting a typed property, and the code in the cache key."""

from typing import Any

import numpy as np
import pytest
from artifacts import INPUTS
from model_arguments import classes
from tfx import types
from tfx.orchestration.data_types import RuntimeParameter

from stagecraft.common.errors import UserError
from stagecraft.components.fingerprints.training_properties import weights_fingerprint
from stagecraft.components.trainer.component import Trainer, TrainerSpec
from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings


def _trainer(settings: TrainingSettings | None = None, **overrides: Any) -> Trainer:
    return Trainer(
        **{name: types.Channel(type=kind) for name, kind in INPUTS.items()},
        settings=settings or TrainingSettings(),
        checkpoint_root="checkpoints",
        **overrides,
    )


def test_every_setting_is_a_typed_parameter():
    flat = TrainingSettings.model_validate({"train": {"steps": 3, "eval_every": 2}}).flat()
    parameters = TrainerSpec.PARAMETERS
    for name, value in flat.items():
        assert parameters[name].type is type(value), name
        assert not parameters[name].optional or name in ("train_steps", "train_epochs"), name
    assert parameters["train_epochs"].type is float
    fields = TrainSettings.model_fields.items()
    empty = {f"train_{name}" for name, field in fields if field.default in (None, (), {})}
    unset = empty - flat.keys()
    assert {"train_epochs", "train_initial_weights", "train_optimizer_args"} <= unset
    unset.add("task_args")
    others = set(parameters) - set(flat) - unset
    fingerprints = {"code_fingerprint", "initial_weights_fingerprint"}
    assert others == {"run_fn", "checkpoint_root", "splits", *fingerprints}
    for name in {*unset, "initial_weights_fingerprint"}:
        assert parameters[name].optional, name


def test_settings_become_execution_properties():
    settings = TrainingSettings.model_validate({"train": {"steps": 3}})
    properties = _trainer(settings).exec_properties
    assert properties["train_steps"] == 3
    assert "train_epochs" not in properties
    assert (
        TrainingSettings.from_flat(
            {
                key: value
                for key, value in properties.items()
                if key.startswith(("train_", "parallel_"))
            }
        )
        == settings
    )


def test_a_runtime_parameter_takes_the_place_of_a_setting():
    rate = RuntimeParameter(name="learning_rate", ptype=float, default=0.05)
    steps = RuntimeParameter(name="steps", ptype=int, default=10)
    strategy = RuntimeParameter(name="strategy", ptype=str, default="one_device")
    properties = _trainer(
        train_learning_rate=rate, train_steps=steps, parallel_strategy=strategy
    ).exec_properties
    assert properties["train_learning_rate"] is rate
    assert properties["train_steps"] is steps
    assert properties["parallel_strategy"] is strategy


def test_a_runtime_parameter_of_another_type_is_refused():
    with pytest.raises(TypeError, match="train_steps"):
        _trainer(train_steps=RuntimeParameter(name="steps", ptype=str, default="10"))


def test_an_unknown_override_is_refused_with_the_nearest():
    with pytest.raises(TypeError, match="train_lerning_rate .*mean train_learning_rate"):
        _trainer(train_lerning_rate=0.1)


def test_the_users_model_is_part_of_the_cache_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "a_users_net.py"
    settings = TrainingSettings.model_validate({"train": {"model": "a_users_net:build"}})
    fingerprints = []
    for body in ("pass", "pass", "return 1"):
        module.write_text(f"def build(input_shape, num_classes):\n    {body}\n")
        fingerprints.append(_trainer(settings).exec_properties["code_fingerprint"])
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert fingerprints[0] != _trainer().exec_properties["code_fingerprint"]


def test_a_model_that_is_not_there_is_said_before_anything_runs():
    with pytest.raises(UserError, match="no_such_module"):
        _trainer(TrainingSettings.model_validate({"train": {"model": "no_such_module:build"}}))


WITH_A_FILE = """
import pathlib
import keras
import numpy as np

def build(input_shape, num_classes):
    weights = np.load(pathlib.Path(__file__).parent / "weights.npz")
    start = keras.initializers.Constant(float(weights["start"]))
    dense = keras.layers.Dense(num_classes, kernel_initializer=start)
    return keras.Sequential([keras.Input(input_shape), keras.layers.Flatten(), dense])
"""


@pytest.mark.parametrize("num_classes", [None, 7])
def test_a_file_that_the_users_model_reads_is_part_of_the_cache_key(
    num_classes, tmp_path, monkeypatch
):
    name = f"a_net_with_a_file_{num_classes}"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{name}.py").write_text(WITH_A_FILE)
    settings = TrainingSettings.model_validate({"train": {"model": f"{name}:build"}})

    def fingerprint(start: float) -> str:
        np.savez(tmp_path / "weights.npz", start=start)
        made = _trainer(settings, model_arguments=num_classes and classes(num_classes))
        return str(made.exec_properties["code_fingerprint"])

    first = fingerprint(0.1)
    assert fingerprint(0.2) != first
    assert fingerprint(0.1) == first
    assert _trainer(settings).exec_properties.get("initial_weights_fingerprint") is None


def test_initial_weights_are_part_of_the_cache_key(tmp_path):
    def properties(content: bytes, name: str = "w.weights.h5") -> dict[str, Any]:
        (tmp_path / name).write_bytes(content)
        train = {"initial_weights": str(tmp_path / name)}
        made = _trainer(TrainingSettings.model_validate({"train": train}))
        return dict(made.exec_properties)

    first, second = properties(b"one"), properties(b"two")
    key = "initial_weights_fingerprint"
    assert first[key] != second[key]
    assert first["code_fingerprint"] == second["code_fingerprint"]
    assert properties(b"one", "x.weights.h5")[key] == first[key], (
        "where it lies is another property"
    )


def test_what_lies_beside_initial_weights_does_not_count(tmp_path):
    variables = tmp_path / "variables" / "variables.index"
    variables.parent.mkdir()
    variables.write_bytes(b"one")
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    first = weights_fingerprint(str(tmp_path))
    (tmp_path / "model_card.json").write_text("{}")
    assert weights_fingerprint(str(tmp_path)) == first
    variables.write_bytes(b"two")
    assert weights_fingerprint(str(tmp_path)) != first


def test_initial_weights_that_are_not_there_are_said_at_once(tmp_path):
    gone = str(tmp_path / "gone.keras")
    settings = TrainingSettings.model_validate({"train": {"initial_weights": gone}})
    with pytest.raises(InitialWeightsError) as caught:
        _trainer(settings)
    assert caught.value.path == gone
    later = RuntimeParameter(name="weights", ptype=str, default=gone)
    made = _trainer(train_initial_weights=later)
    assert made.exec_properties["train_initial_weights"] is later
