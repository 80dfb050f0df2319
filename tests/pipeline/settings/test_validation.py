"""Who is blamed for settings that cannot be: the file, ``--set``, or an option."""

from __future__ import annotations

import pathlib

import pytest

from stagecraft.pipeline.settings import SettingsError, load
from stagecraft.pipeline.settings.overrides import Override


def refused(
    tmp_path: pathlib.Path, content: str | bytes, *overrides: str | Override
) -> tuple[str, str]:
    """The file, and what was said."""
    file = tmp_path / "mine.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingsError) as error:
        load(str(file), overrides)
    return str(file), str(error.value)


def test_the_file_is_blamed_for_its_own(tmp_path: pathlib.Path) -> None:
    file, said = refused(tmp_path, "train: {stps: 3}\n", "train.keep=3", "data.shards=2")
    assert said == f"{file}: train: unknown setting 'stps'; did you mean 'steps'?"


def test_set_is_blamed_for_its_own(tmp_path: pathlib.Path) -> None:
    file, said = refused(tmp_path, "train: {keep: 3}\n", "train.stps=3", "train.seed=1")
    assert said == "--set train.stps=3: train: unknown setting 'stps'; did you mean 'steps'?"
    assert file not in said


def test_each_mistake_has_its_own(tmp_path: pathlib.Path) -> None:
    content = "train: {model: 3, seed: x}\n"
    file, said = refused(tmp_path, content, "data.shards=0")
    assert said.split("; ") == [
        f"{file}: train.model: expected text (given: 3)",
        "train.seed: expected a whole number (given: 'x')",
        "--set data.shards=0: data.shards: expected 1 or more (given: 0)",
    ]


def test_what_two_of_them_make_together(tmp_path: pathlib.Path) -> None:
    _, said = refused(tmp_path, "train: {keep: 3}\n", "train.steps=9", "train.epochs=3")
    assert said.startswith("--set train.steps=9, --set train.epochs=3: train: steps: 9 and")
    mirrored = "parallel: {strategy: mirrored}\n"
    _, said = refused(tmp_path, mirrored, "parallel.replicas=3", "train.keep=1")
    assert said.startswith("--set parallel.replicas=3: train.batch_size: 128 is not divided by")


def test_the_last_of_the_same_counts(tmp_path: pathlib.Path) -> None:
    _, said = refused(tmp_path, "{}", "train.seed=1", "train.seed=x")
    assert said.startswith("--set train.seed=x: train.seed: expected a whole number")
    assert load("quickstart", ("train.seed=x", "train.seed=1")).train.seed == 1


def test_one_that_needs_another_one(tmp_path: pathlib.Path) -> None:
    _, said = refused(tmp_path, "train: 3\n", "train={keep: 1}", "train.stps=5")
    assert said.startswith("--set train.stps=5: train: unknown setting 'stps'")
    file = tmp_path / "mine.yaml"
    file.write_text("train:\n")
    assert load(str(file), ("train.steps=5",)).train.steps == 5


def test_an_option_is_blamed_by_its_name(tmp_path: pathlib.Path) -> None:
    option = Override.option("--profile", "parallel.profile_steps", "5")
    _, said = refused(tmp_path, "{}", option)
    assert said.startswith("--profile 5: parallel.profile_steps: 5 ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ("is empty", "{}")),
        ("# nothing\n", ("is empty",)),
        ("[]", ("expected sections", "[]")),
        ("0", ("expected sections",)),
        ("false", ("expected sections",)),
        ("train:\n  steps: 1\ntrain:\n  steps: 2\n", ("line 3", "'train' is there twice", "1;")),
        ("name: Größe".encode("latin-1"), ("line 1", "0xf6 is not UTF-8")),
        ("name: x".encode("utf-16"), ("UTF-16", "UTF-8")),
        ("name: 2024-01-01", ("name: expected text that matches", "'2024-01-01'")),
        ("train: {steps: 2024-13-45}", ("train.steps: expected a whole number", "'2024-13-45'")),
        ("train: {steps: " + "9" * 5000 + "}", ("line 1", "5,000 digits", "2^63")),
        ("train: {steps: '" + "9" * 5000 + "'}", ("train.steps: expected less than 2^63",)),
        ("train: {augment: 5}", ("train.augment: 5 ",)),
        ("parallel: {cuts: 5}", ("parallel.cuts: 5 ",)),
        ("1: 2", ("unknown setting '1'",)),
        ("kubeflow: {steps: 3}", ("kubeflow.steps: expected settings below it",)),
    ],
)
def test_a_wrong_file_is_one_short_sentence(
    tmp_path: pathlib.Path, content: str | bytes, words: tuple[str, ...]
) -> None:
    file, said = refused(tmp_path, content)
    assert said.startswith(file)
    for word in words:
        assert word in said
    assert "\n" not in said and len(said) < 600


@pytest.mark.parametrize("name", ["", "a\0b", ".", "\udcff"])
def test_a_file_that_is_none(name: str) -> None:
    if name == "":
        assert load("").name == "stagecraft"  # as without one
        return
    with pytest.raises(SettingsError, match="give the path of a YAML file"):
        load(name)


def test_braces_of_nothing_are_the_defaults(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("{}\n")
    assert load(str(file)) == load()


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", ".inf", ".nan", "1e400", "'inf'"])
@pytest.mark.parametrize("name", ["train.learning_rate", "train.epochs", "data.val_fraction",
                                  "evaluate.min_accuracy", "parity.timeout_seconds"])  # fmt: skip
def test_numbers_are_finite(tmp_path: pathlib.Path, name: str, value: str) -> None:
    key, field = name.split(".")
    for said in (
        refused(tmp_path, "{}", f"{name}={value}")[1],
        refused(tmp_path, f"{key}: {{{field}: {value}}}")[1],
    ):
        assert f"{name}: expected a finite number" in said


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**39])
@pytest.mark.parametrize("name", ["train.steps", "data.shards", "kubeflow.every_step.retries"])
def test_whole_numbers_are_of_64_bits(tmp_path: pathlib.Path, name: str, value: int) -> None:
    _, said = refused(tmp_path, "{}", f"{name}={value}")
    assert name in said
    assert ("expected less than 2^63" in said) == (value > 0)  # below, 0 or 1 is the least
    assert load(None, ("train.steps=9223372036854775807",)).train.steps == 2**63 - 1


def test_the_number_of_steps_is_one(tmp_path: pathlib.Path) -> None:
    assert "train.epochs: expected" in refused(tmp_path, "{}", "train.epochs=1e300")[1]
