"""Errors name the origin of a wrong setting: the file, ``--set``, or an option."""

import pytest

from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load, recorded
from stagecraft.pipeline.settings.overrides import Override


def test_a_setting_within_a_mapping_has_its_whole_name(tmp_path):
    error = error_of(tmp_path, "evaluate: {thresholds: {loss: {min: 2, max: 1}}}\n")
    assert error.setting.endswith("loss.min") and "thresholds" in error.setting


def test_outputs_with_the_names_of_secrets_are_kept():
    train = {"loss": {"tokens": "mse"}, "optimizer_args": {"beta_1": 0.8}, "optimizer": "adam"}
    kept = PipelineSettings.model_validate({"name": "a", "train": train})
    assert recorded(kept)["train"]["loss"] == {"tokens": "mean_squared_error"}


def error_of(tmp_path, content, *overrides):
    """What loading the file raises."""
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError) as error:
        load(str(file), overrides)
    return error.value


def refused(tmp_path, content, *overrides):
    """The file, and what was said."""
    said = str(error_of(tmp_path, content, *overrides))
    return str(tmp_path / "mine.yaml"), said


@pytest.mark.parametrize(
    ("content", "overrides", "origins"),
    [
        ("train: {stps: 3}\n", ["train.keep=3", "data.shards=2"], ["FILE"]),
        ("train: {keep: 3}\n", ["train.stps=3", "train.seed=1"], ["--set train.stps=3"]),
        ("train: {model: 3, seed: x}\n", ["data.shards=0"], ["FILE", "--set data.shards=0"]),
        (
            "train: {keep: 3}\n",
            ["train.steps=9", "train.epochs=3"],
            ["--set train.steps=9, --set train.epochs=3"],
        ),
        (
            "parallel: {strategy: mirrored}\n",
            ["parallel.replicas=3", "train.keep=1"],
            ["--set parallel.replicas=3"],
        ),
        ("{}", ["train.seed=1", "train.seed=x"], ["--set train.seed=x"]),
        ("train: 3\n", ["train={keep: 1}", "train.stps=5"], ["--set train.stps=5"]),
        (
            "{}",
            [Override.option("--profile", "parallel.profile_steps", "5")],
            ["--profile 5"],
        ),
    ],
)
def test_each_error_names_its_origin(tmp_path, content, overrides, origins):
    file, said = refused(tmp_path, content, *overrides)
    named = [f"{origin.replace('FILE', file)}: " for origin in origins]
    assert said.startswith(named[0]) and all(each in said for each in named)
    assert said.count("--set ") == "".join(named).count("--set ")


def test_the_last_override_of_a_setting_counts(tmp_path):
    assert load("quickstart", ("train.seed=x", "train.seed=1")).train.seed == 1
    file = tmp_path / "mine.yaml"
    file.write_text("train:\n")  # a section without settings
    assert load(str(file), ("train.steps=5",)).train.steps == 5


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "0",
        "name: 2024-01-01",
        "train: {steps: 2024-13-45}",
        "train: {steps: '" + "9" * 5000 + "'}",
        "train: {augment: 5}",
        "parallel: {cuts: 5}",
        "1: 2",
        "kubeflow: {steps: 3}",
        "train: [",
        "train: {steps: 3, epochs: 2}\n",
    ],
    ids=range(12),
)
def test_a_wrong_file_is_one_short_sentence(tmp_path, content):
    file, said = refused(tmp_path, content)
    assert said.startswith(file) and "\n" not in said and len(said) < 600


@pytest.mark.parametrize("name", ["a\0b", ".", "\udcff", "/no/such.yaml"])
def test_a_missing_file(name):
    with pytest.raises(SettingsError) as caught:
        load(name)
    assert (caught.value.setting, caught.value.value) == ("--config", name)


def test_no_file_and_one_without_settings_are_the_defaults(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("{}\n")
    assert load("") == load(str(file)) == load()


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", ".inf", ".nan", "1e400", "'inf'"])
@pytest.mark.parametrize("name", ["train.learning_rate", "train.epochs", "data.val_fraction",
                                  "evaluate.min_accuracy", "parity.timeout_seconds"])  # fmt: skip
def test_numbers_are_finite(tmp_path, name, value):
    key, field = name.split(".")
    for error in (
        error_of(tmp_path, "{}", f"{name}={value}"),
        error_of(tmp_path, f"{key}: {{{field}: {value}}}"),
    ):
        assert error.setting == name
        assert f"{name}: " in str(error) and "finite number" in str(error)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**39])
@pytest.mark.parametrize("name", ["train.steps", "data.shards", "kubeflow.every_step.retries"])
def test_whole_numbers_are_of_64_bits(tmp_path, name, value):
    _, said = refused(tmp_path, "{}", f"{name}={value}")
    assert name in said
    assert ("expected less than 2^63" in said) == (value > 0)  # below, 0 or 1 is the least
    assert load(None, ("train.steps=9223372036854775807",)).train.steps == 2**63 - 1


def test_the_number_of_steps_is_one(tmp_path):
    assert "train.epochs: expected" in refused(tmp_path, "{}", "train.epochs=1e300")[1]
