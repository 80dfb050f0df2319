import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import keras
import numpy as np
import pytest
from model_arguments import classes
from pydantic import ValidationError
from refusals import refusal

from stagecraft.components.fingerprints.training_properties import fingerprints
from stagecraft.components.report.pages import sentences
from stagecraft.pipeline.cli import describe_settings
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.planning import collective_costs
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

HERE = pathlib.Path(__file__).parent
PACKAGE = HERE.parent / "other_package"

ADDED = {
    "parallel.strategy": "local_sgd",
    "train.optimizer": "sign_sgd",
    "train.schedule": "staircase",
    "train.augment": "invert",
    "train.model": "perceptron",
}
USED = {name.replace(".", "_"): value for name, value in ADDED.items()} | {
    "train_model": "perceptron_8"
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The package is on the path of this process and of those that it starts."""
    monkeypatch.syspath_prepend(PACKAGE)
    paths = [str(PACKAGE), str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    _refresh()
    yield PACKAGE
    monkeypatch.undo()
    _refresh()


def _refresh() -> None:
    for registry in (*registries.BY_SETTING.values(), registries.SHARD_RULES):
        registry.refresh()


def test_without_the_package_its_names_are_refused():
    for name, value in USED.items():
        with pytest.raises(ValidationError):
            TrainingSettings.from_flat({name: value})


def test_settings_take_its_names_and_travel_flat(installed):
    settings = TrainingSettings.from_flat(USED)
    assert (USED | {"train_augment": '["invert"]'}).items() <= settings.flat().items()
    assert TrainingSettings.from_flat(settings.flat()) == settings
    assert TrainSettings(augment="invert, cutout,crop").augment == ("crop", "cutout", "invert")


def test_describing_settings_lists_them(installed):
    described = {setting.name: setting.entries for setting in describe_settings.described()}
    for name, value in ADDED.items():
        assert described[name][value] == registries.BY_SETTING[name].get(value).description
    text = "\n".join(describe_settings.paragraphs())
    description = registries.BY_SETTING["parallel.strategy"].get("local_sgd").description
    assert "\n    local_sgd: " in text
    assert f" local_sgd: {description}" in " ".join(text.split())


def test_its_own_rules_and_those_of_all_refuse(installed):
    refused = {
        "precision": {"precision": "mixed_float16"},
        "stages": {"stages": 2},
        "workers": {"workers": 2},
        "all_reduce": {"all_reduce": "ring"},
    }
    for setting, values in refused.items():
        error = refusal(ParallelSettings, {"strategy": "local_sgd", **values})
        assert error.setting == f"parallel.{setting}"
    with pytest.raises(ValidationError):
        TrainSettings(model="perceptron_0")


def test_its_plan_and_report(installed, monkeypatch):
    monkeypatch.setenv("LOCAL_SGD_STEPS", "4")
    links = collective_costs.Links(devices=1e9)
    each, mirrored = (
        collective_costs.exchange_seconds(
            ParallelSettings(strategy=name, replicas=2), [4e6], 4e6, links
        )
        for name in ("local_sgd", "mirrored")
    )
    assert each == mirrored / 4
    assert strategy.find("local_sgd").traffic_name == "averaging"
    record = {
        "topology": {
            "strategy": "local_sgd",
            "devices": ["CPU:0", "CPU:1"],
            "stages": 1,
            "workers": 1,
        },
        "settings": {"train_batch_size": 8, "parallel_virtual_devices": 2},
    }
    assert sentences.grid_text(record) == "local sgd"
    assert "weights every 4 steps" in sentences.topology(record)


def test_a_report_of_a_package_that_is_gone_has_its_name():
    assert strategy.label("local_sgd", 2, 1) == "local sgd"


def test_its_parity_case_is_among_all(installed):
    assert "local_sgd-2" in cases.named()
    (case,) = cases.select("local_sgd-2", TrainingSettings(), steps=4, batch_size=16)
    assert case.settings.parallel.strategy == "local_sgd"
    assert case.settings.train.momentum == 0


def test_its_code_is_part_of_the_cache_key(installed):
    assert {f"stagecraft_extras.{name}" for name in ADDED.values()} <= set(registries.code(USED))
    keys = {
        fingerprints(["stagecraft.trainer_module.run_fn"], settings, None)["code_fingerprint"]
        for settings in (USED, USED | {"train_optimizer": "sgd"})
    }
    assert len(keys) == 2


def test_shards_divide_its_layer_by_its_rule(installed):
    from comparing import compare, ways
    from stagecraft_extras.scale import Scale

    layers, before = keras.layers, keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    try:
        inputs = keras.Input((40,), dtype="float64")
        hidden = Scale(name="scale")(layers.Dense(42, activation="tanh", name="up")(inputs))
        model = keras.Model(inputs, layers.Dense(40, name="down")(hidden))
        shards = compare(model, 2)
    finally:
        keras.config.set_dtype_policy(before)
    assert ways(shards) == {"up": "columns", "scale": "channels", "down": "rows"}
    flat = {"parallel_strategy": "grid", "parallel_shards": 2}
    assert "stagecraft_extras.scale" in registries.code(flat)
    assert "stagecraft_extras.scale" not in registries.code({"parallel_strategy": "grid"})


@pytest.mark.slow
def test_a_training_with_all_of_them(installed, make_fn_args, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_SGD_STEPS", "2")
    devices = {"parallel_replicas": 2, "parallel_virtual_devices": 2}
    fn_args = make_fn_args(tmp_path, **USED, **devices, train_ema_decay=0.0)
    (tmp_path / "fn_args.json").write_text(json.dumps(vars(fn_args)))
    subprocess.run([sys.executable, HERE / "train.py", tmp_path / "fn_args.json"], check=True)
    record = json.loads((tmp_path / "model_run" / "record.json").read_text())
    assert record["steps"] == 6
    assert record["topology"]["strategy"] == "local_sgd"
    assert all(np.isfinite(each["loss"]) for each in record["evaluations"])


@pytest.mark.parametrize(
    ("steps", "equal"),
    [
        pytest.param(1, True, marks=pytest.mark.full),
        pytest.param(2, False, marks=pytest.mark.full),
    ],
)
def test_parity(installed, tmp_path, monkeypatch, steps, equal):
    """With averages in each step it is mirrored; with fewer it is not, and the case shows it."""
    from stagecraft.trainer_module.parity.check import Check

    monkeypatch.setenv("LOCAL_SGD_STEPS", str(steps))
    draw = np.random.RandomState(0)
    images = draw.randn(64, 32, 32, 3).astype(np.float32)
    np.savez(tmp_path / "data.npz", inputs=images, targets=draw.randint(0, 10, 64))
    settings = TrainingSettings(train=TrainSettings(model="perceptron_8", learning_rate=0.1))
    chosen = cases.select("local_sgd-2", settings, steps=4, batch_size=16)
    check = Check(
        tmp_path / "data.npz", classes(), tmp_path / "work", steps=4, timeout_seconds=300.0
    )
    (row,) = check.rows(chosen)
    assert row.equal is equal, row.reason
