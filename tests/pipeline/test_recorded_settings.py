"""No secret of the settings is shown or recorded."""

import pytest
import yaml

from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.cli import describe_settings
from stagecraft.pipeline.history import past_run
from stagecraft.pipeline.kubeflow import visible_secrets
from stagecraft.pipeline.settings import SettingsError, changes_as_yaml, load

SECRET = "c4n4ry"

PLANTED = (
    f"kubeflow.every_step.env={{HF_TOKEN: {SECRET}, PLAIN: {SECRET}-too, LEVEL: info}}",
    f"kubeflow.steps.Trainer.env.PROXY=http://me:{SECRET}@proxy:1",
    f"beam.args=[--s3_secret_access_key={SECRET}, --project=p, --s3_session_token, {SECRET}]",
    f"beam.unchecked_args=[--password, {SECRET}]",
    "train.seed=7",
)


def test_records_hold_neither_secrets_nor_kubeflow():
    settings = load("quickstart", PLANTED)
    for text in (changes_as_yaml(settings), yaml.safe_dump(pipeline_settings.recorded(settings))):
        assert SECRET not in text and "kubeflow" not in text
        tree = yaml.safe_load(text)
        assert tree["train"]["seed"] == 7
        assert tree["beam"]["args"] == [
            "--s3_secret_access_key=…", "--project=…", "--s3_session_token", "…",
        ]  # fmt: skip
        assert tree["beam"]["unchecked_args"] == ["--password", "…"]


def test_history_leaves_out_what_earlier_versions_recorded():
    old = yaml.safe_dump(load("quickstart", PLANTED).model_dump(mode="json"))
    assert SECRET in old
    known = past_run.known_settings({"TrainingReport": {"settings": old}})
    assert SECRET not in str(known)
    assert known["train.seed"] == 7
    assert not [name for name in known if name.startswith("kubeflow")]
    assert known.keys() >= past_run.default_settings().keys()


@pytest.mark.parametrize("preset", pipeline_settings.presets())
def test_history_compares_with_the_preset(preset):
    settings = load(preset)
    found, base = past_run.base_settings(settings.name)
    whole = past_run.flat(pipeline_settings.recorded(settings))
    assert found == preset and past_run.changed_settings(whole, base) == {}


def test_config_shows_no_secret():
    settings = load("quickstart", PLANTED)
    env = yaml.safe_load(describe_settings.as_yaml(settings))["kubeflow"]["every_step"]["env"]
    assert env == {"HF_TOKEN": "…", "PLAIN": f"{SECRET}-too", "LEVEL": "info"}
    trainer = yaml.safe_load(describe_settings.as_yaml(settings))["kubeflow"]["steps"]["Trainer"]
    assert trainer["env"] == {"PROXY": "http://…@proxy:1"}


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("kubeflow.every_step.env.HF_TOKEN=…", "kubeflow.every_step.env.HF_TOKEN"),
        ("beam.args=[--s3_session_token=…]", "beam.args"),
        ("beam.unchecked_args=[--password=…]", "beam.unchecked_args"),
    ],
)
def test_what_was_left_out_cannot_be_used(override, name):
    with pytest.raises(SettingsError) as refused:
        load("quickstart", (override,))
    assert refused.value.setting == name


@pytest.mark.parametrize(
    "name",
    ["data.source", "data.schema_file", "data.cache_dir", "push.directory", "kubeflow.checkpoints",
     "kubeflow.pipeline_root", "kubeflow.job.folder", "kubeflow.image"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("address", "shown", "what"),
    [
        (f"s3://key:{SECRET}@bucket/x", "s3://…@bucket/x", "user and password"),
        (f"s3://bucket/x?X-Amz-Signature={SECRET}", "X-Amz-Signature=…", "signature"),
    ],
)
def test_no_address_holds_credentials(name, address, shown, what):
    with pytest.raises(SettingsError) as refused:
        load("quickstart", (f"{name}={address}",))
    said = str(refused.value)
    assert SECRET not in said
    assert f"{name}: " in said and shown in said and f"expected no {what}" in said


@pytest.mark.parametrize(
    "override",
    [
        f"beam.args=[--flink_master=https://me:{SECRET}@host]",
        f"beam.args={SECRET}",
        f"beam.args=[[{SECRET}]]",
        f"kubeflow.every_step.env.A=[{SECRET}]",
        f"kubeflow.every_step={{env: {{A: [{SECRET}]}}}}",
        f"kubeflow={{steps: {{Trainer: {{env: {{A: [{SECRET}]}}}}}}}}",
        f"train.token={SECRET}",
        f"train.seed=https://me:{SECRET}@host",
        f"https://me:{SECRET}@host",
        f"https://me:{SECRET}@host/?x=1",
    ],
)
def test_no_refusal_repeats_a_secret(override):
    with pytest.raises(SettingsError) as refused:
        load("quickstart", (override,))
    assert SECRET not in str(refused.value)


def test_a_warning_names_what_is_visible():
    settings = load("quickstart", PLANTED)
    assert visible_secrets.names(settings) == [
        "kubeflow.every_step.env.HF_TOKEN",
        "kubeflow.steps.Trainer.env.PROXY",
        "beam.args --s3_secret_access_key",
        "beam.args --s3_session_token",
        "beam.unchecked_args --password",
    ]
    told = visible_secrets.warning(settings, "x.yaml")
    assert told is not None and SECRET not in told and "kubeflow.every_step.secrets" in told
    assert visible_secrets.warning(load("quickstart"), "x.yaml") is None
