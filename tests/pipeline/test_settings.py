"""The tree of settings: presets, files, overrides and errors."""

import math

import pytest

from stagecraft.pipeline.cli.commands.run import run
from stagecraft.pipeline.settings import SettingsError, load, presets
from stagecraft.trainer_module.settings import TrainingSettings


@pytest.mark.parametrize("preset", presets())
def test_presets_are_valid(preset):
    assert load(preset).name == preset.replace("_", "-")


@pytest.mark.parametrize("preset", presets())
def test_a_preset_blesses_against_a_threshold(preset):
    evaluate = load(preset).evaluate
    assert evaluate.min_accuracy or evaluate.thresholds


def test_the_help_of_config_names_all_presets():
    [option] = (each for each in run.params if each.name == "config")
    assert f"({', '.join(presets())})" in option.help


def test_overrides_win_over_the_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("train: {model: resnet20, steps: 7}\ndata: {source: /somewhere}\n")
    settings = load(str(file), ("train.steps=9", "data.shards=3"))
    assert (settings.train.model, settings.train.steps) == ("resnet20", 9)
    assert (settings.data.source, settings.data.shards) == ("/somewhere", 3)


def test_steps_replace_the_presets_epochs_and_back():
    assert load("quickstart", ("train.steps=5",)).train.epochs is None
    unset = load("quickstart", ("train.steps=5", "train.epochs=null")).train
    assert (unset.steps, unset.epochs) == (5, None)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("train.augment=[flip, crop]", ("crop", "flip")),
        ("train.augment=cutout,flip", ("flip", "cutout")),
        ("train.augment=none", ()),
        ("train.augment=false", ()),
        ("train.augment=true", ("crop", "flip")),
    ],
)
def test_augment_takes_lists_words_and_booleans(given, parsed):
    assert load("quickstart", (given,)).train.augment == parsed


@pytest.mark.parametrize(
    ("overrides", "setting", "use"),
    [
        (["train.stps=5"], "train.stps", "steps"),
        (["trian.steps=5"], "trian", "train"),
        (["train.steps=0"], "train.steps", ""),
        (["train.augment=mixupp"], "train.augment", "mixup"),
        (["train.batch_size=many"], "train.batch_size", ""),
        (["train.batch_size=0"], "train.batch_size", ""),
        (["train.learning_rate=0"], "train.learning_rate", ""),
        (["train.momentum=1"], "train.momentum", ""),
        (["train.optimizer=adams"], "train.optimizer", "adam"),
        (["train.model=rsenet20"], "train.model", "resnet20"),
        (["train.model=resnet21"], "train.model", "resnet20 or resnet56"),
        (["train.model=my_models"], "train.model", "one of airbench_64_256_256,"),
        (["train.model=3"], "train.model", ""),
        (["train=3"], "train", ""),
        (["train.steps"], "--set", "train.steps=500"),
        (["train.steps=5", "train.epochs=2"], "train.steps", "one of them"),
        (["name=a b/c"], "name", ""),
        (["name.first=x"], "name.first", ""),
        (["data.val_fraction=0.6"], "data.val_fraction", ""),
        (["data.val_fraction=half"], "data.val_fraction", ""),
        (["data.label=coarse"], "data.label", "data.dataset: cifar100"),
        (["data.dataset=cifar100"], "data.source", "data.dataset: cifar10"),
        (["parallel.jit=perhaps"], "parallel.jit", ""),
        (["parallel.strategy=gird"], "parallel.strategy", "grid"),
        (["parallel.stages=2"], "parallel.stages", "parallel.strategy: grid"),
        (["parallel.workers=2"], "parallel.workers", "parallel.workers: 1,"),
        (
            ["parallel.strategy=grid", "parallel.stages=3", "parallel.cuts=[add_1]"],
            "parallel.cuts",
            "parallel.stages: 2, name 2",
        ),
        (["parallel.devices=[TPU:0]"], "parallel.devices", "parallel.devices: auto, or"),
        (["parallel.replicas=2"], "parallel.replicas", "parallel.strategy:"),
        (
            ["parallel.strategy=mirrored", "parallel.replicas=4", "parallel.virtual_devices=2"],
            "parallel.virtual_devices",
            "parallel.virtual_devices: 4",
        ),
        (
            ["parallel.strategy=mirrored", "parallel.replicas=3"],
            "train.batch_size",
            "train.batch_size: 63",
        ),
    ],
    ids=str,
)
def test_errors(overrides, setting, use):
    with pytest.raises(SettingsError) as caught:
        load("quickstart", overrides)
    assert caught.value.setting == setting
    assert caught.value.suggestion.startswith(use)


def test_settings_travel_flat_and_come_back():
    settings = load("cifar10", ("train.augment=cutout", "parallel.strategy=mirrored"))
    flat = settings.flat()
    assert all(isinstance(value, int | float | str) for value in flat.values())
    assert "train_steps" not in flat  # None is left out
    back = TrainingSettings.from_flat(flat)
    assert (back.train, back.parallel) == (settings.train, settings.parallel)


@pytest.mark.parametrize("preset", ["cifar10", "cifar100"])
def test_the_fast_presets_have_the_rates_of_airbench94_muon(preset):
    """Upstream sums the losses of 2,000 examples, and couples the decay with the momentum."""
    train = load(preset).train
    batch = train.batch_size
    assert train.learning_rate * train.learning_rate_multipliers["norm/beta"] == pytest.approx(
        0.053 * batch, rel=0.01
    )
    # Upstream divides the logits of 256 features by 256, where the network here multiplies by 1/9.
    assert train.learning_rate == pytest.approx(0.67 * batch * (9 / 256) ** 2, rel=0.01)
    args = train.optimizer_args
    of_kernels = 0.24 * math.sqrt(batch / 2000)
    assert train.learning_rate * args["rate_factor"] == pytest.approx(of_kernels, rel=0.01)
    decay = 2e-6 * batch / (1 - train.momentum)
    assert train.learning_rate * train.weight_decay == pytest.approx(decay, rel=0.01)
    assert (train.momentum, train.label_smoothing) == (0.85, 0.2)
    assert (args["momentum"], args["iterations"], args["normalize_weights"]) == (0.6, 3, True)
    assert set(train.learning_rate_multipliers.values()) == {64}
    assert train.freeze_after == {"whitening/bias": 0.375}  # 3 of 8 epochs
