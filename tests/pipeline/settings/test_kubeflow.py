"""What a step gets: its own fields, and the others from ``every_step``."""

import pytest

from stagecraft.pipeline.settings import SettingsError, load
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings


def test_a_step_has_its_own_and_the_rest_from_every_step():
    settings = KubeflowSettings.model_validate(
        {
            "every_step": {"memory": "4Gi", "env": {"A": "1", "B": "2"}, "retries": 2},
            "steps": {"Trainer": {"memory": "16Gi", "env": {"B": "3"}, "gpus": 2}},
        }
    )
    trainer, other = settings.step("Trainer"), settings.step("Transform")
    assert (trainer.memory, trainer.gpus, trainer.retries) == ("16Gi", 2, 2)
    assert trainer.env == {"A": "1", "B": "3"}
    assert other == settings.every_step


def test_a_step_can_take_back_what_every_step_has():
    settings = KubeflowSettings.model_validate(
        {"every_step": {"gpus": 1, "cpu": 2}, "steps": {"Pusher": {"gpus": 0, "cpu": None}}}
    )
    assert (settings.step("Pusher").gpus, settings.step("Pusher").cpu) == (0, None)


@pytest.mark.parametrize(
    "override",
    [
        "steps.Trainer.memory=16 GB",
        "steps.Trainer.gpu=2",
        "pipeline_root=/home/me",
        "steps.Trainer.volumes=[{claim: data, path: data}]",
        "every_step.image_pull_policy=never",
    ],
)
def test_errors(override):
    with pytest.raises(SettingsError) as caught:
        load(None, (f"kubeflow.{override}",))
    named = f"kubeflow.{override.partition('=')[0]}"
    assert caught.value.setting.startswith(named)
