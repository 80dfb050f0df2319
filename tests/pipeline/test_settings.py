"""The tree of settings: presets, files, overrides, and every refusal."""

from __future__ import annotations

import pathlib

import pytest

from stagecraft.pipeline.settings import SettingsError, load, presets
from stagecraft.trainer_module.settings import TrainingSettings


@pytest.mark.parametrize("preset", presets())
def test_presets_are_valid(preset: str) -> None:
    assert load(preset).name == preset


def test_quickstart_and_cifar10_are_presets() -> None:
    assert set(presets()) >= {"quickstart", "cifar10"}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.batch_size=x", "train.batch_size: expected a whole number (given: 'x')"),
        ("train.batch_size=0", "train.batch_size: expected 1 or more (given: 0)"),
        ("train.learning_rate=0", "train.learning_rate: expected more than 0"),
        ("train.momentum=1", "train.momentum: expected less than 1"),
        ("data.val_fraction=0.6", "data.val_fraction: expected 0.5 or less"),
        ("data.val_fraction=half", "data.val_fraction: expected a number (given: 'half')"),
        ("parallel.jit=perhaps", "parallel.jit: expected true or false"),
        ("train.model=3", "train.model: expected text (given: 3)"),
        ("train.optimizer=adam", "train.optimizer: adam does not exist; use adamw"),
        ("name=a b/c", "name: expected text that matches ^[a-z][a-z0-9-]{0,62}$"),
        ("train=3", "train: expected settings below it, each a name and a value (given: 3)"),
    ],
)
def test_what_was_expected_is_said(override: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load("quickstart", (override,))
    assert said in str(refused.value)


def test_overrides_win_over_the_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {model: resnet20, steps: 7}\ndata: {source: /somewhere}\n")
    settings = load(str(file), ("train.steps=9", "data.shards=3"))
    assert (settings.train.model, settings.train.steps) == ("resnet20", 9)
    assert (settings.data.source, settings.data.shards) == ("/somewhere", 3)


def test_steps_replace_the_presets_epochs_and_back() -> None:
    assert load("quickstart", ("train.steps=5",)).train.epochs is None
    with pytest.raises(SettingsError, match=r"steps: 5 .*epochs: 2"):
        load("quickstart", ("train.steps=5", "train.epochs=2"))
    unset = load("quickstart", ("train.steps=5", "train.epochs=null")).train
    assert (unset.steps, unset.epochs) == (5, None)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("train.augment=[flip, crop]", "crop,flip"),
        ("train.augment=cutout,flip", "flip,cutout"),
        ("train.augment=none", "none"),
        ("train.augment=false", "none"),
        ("train.augment=true", "crop,flip"),
    ],
)
def test_augment_takes_lists_words_and_booleans(given: str, parsed: str) -> None:
    assert load("quickstart", (given,)).train.augment == parsed


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("train.stps=5",), ("train", "'stps'", "did you mean 'steps'")),
        (("trian.steps=5",), ("'trian'", "did you mean 'train'")),
        (("train.steps=0",), ("train.steps", "1 or more", "0")),
        (("train.augment=mixup",), ("train.augment: mixup", "cutout")),
        (("train.batch_size=many",), ("train.batch_size", "whole number", "'many'")),
        (("train.model=rsenet20",), ("train.model: rsenet20", "use resnet20")),
        (("train.model=resnet21",), ("train.model: resnet21", "6n + 2")),
        (("train.model=my_models",), ("train.model: my_models", "package.module:function")),
        (("data.label=coarse",), ("label", "dataset: cifar100")),
        (("data.dataset=cifar100",), ("sample", "dataset: cifar10")),
        (("parallel.strategy=gird",), ("parallel.strategy: gird", "use grid")),
        (("parallel.stages=2",), ("parallel: stages: 2", "use strategy: grid")),
        (("parallel.workers=2",), ("parallel: workers: 2", "or workers: 1")),
        (
            ("parallel.strategy=grid", "parallel.stages=3", "parallel.cuts=[add_1]"),
            ("cuts: add_1", "use stages: 2"),
        ),
        (("parallel.devices=[TPU:0]",), ("parallel.devices: TPU:0", "use devices: auto")),
        (("parallel.replicas=2",), ("replicas", "strategy: mirrored")),
        (
            (
                "parallel.strategy=mirrored",
                "parallel.replicas=4",
                "parallel.virtual_devices=2",
            ),
            ("virtual_devices: 2", "use virtual_devices: 4"),
        ),
        (
            ("parallel.strategy=mirrored", "parallel.replicas=3"),
            ("train.batch_size: 64", "parallel.replicas: 3", "use train.batch_size: 63"),
        ),
        (("train.steps",), ("--set train.steps", "key=value")),
        (("name.first=x",), ("name is a value",)),
    ],
)
def test_refusals_name_field_value_and_what_would_work(
    overrides: tuple[str, ...], words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingsError) as error:
        load("quickstart", overrides)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("No such file", "quickstart")),
        ("train: [", ("not YAML",)),
        ("- a\n- b\n", ("expected sections",)),
        ("train: {steps: 3, epochs: 2}\n", ("steps: 3", "epochs: 2")),
    ],
)
def test_bad_files_are_named(
    tmp_path: pathlib.Path, content: str | None, words: tuple[str, ...]
) -> None:
    file = tmp_path / "mine.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError) as error:
        load(str(file))
    for word in (str(file), *words):
        assert word in str(error.value)


def test_settings_travel_flat_and_come_back() -> None:
    settings = load("cifar10", ("train.augment=cutout", "parallel.strategy=mirrored"))
    flat = settings.flat()
    assert all(isinstance(value, int | float | str) for value in flat.values())
    assert "train_steps" not in flat  # None is left out
    back = TrainingSettings.from_flat(flat)
    assert (back.train, back.parallel) == (settings.train, settings.parallel)
