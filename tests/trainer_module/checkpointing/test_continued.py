"""Which settings a training run continues: those of its checkpoints, or none."""

import pathlib
from typing import Any

import numpy as np
import pytest

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.settings import TrainingSettings

AUTO = TrainingSettings.model_validate({"parallel": {"precision": "auto"}})


def _written(folder: pathlib.Path, precision: str, step: int = 10, finished: bool = True) -> None:
    """A checkpoint of a training run of ten steps with the settings of AUTO."""
    settings = resume.resolved(AUTO.flat() | {"parallel_precision": precision}, 10)
    progress = {"settings": settings, "finished": finished}
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(step, {"a": np.zeros(1)}, progress, best_step=step)
        checkpoints.flush()


def _continued(folder: pathlib.Path, total: int = 10, **changed: Any) -> dict[str, Any]:
    return Checkpoints(folder, writes=False).continued(AUTO.flat() | changed, total)


def test_auto_continues_the_precision_of_the_newest_readable_checkpoint(tmp_path):
    assert _continued(tmp_path) == {}
    _written(tmp_path, "float32", step=5, finished=False)
    _written(tmp_path, "mixed_bfloat16")
    assert _continued(tmp_path)["parallel_precision"] == "mixed_bfloat16"
    (tmp_path / "10" / "progress.json").write_text("{")
    assert _continued(tmp_path)["parallel_precision"] == "float32"


@pytest.mark.parametrize(
    "changed", [{"train_model": "resnet20"}, {"total": 20}, {"parallel_precision": "float32"}]
)
def test_a_finished_training_with_other_settings_continues_nothing(tmp_path, changed):
    """Its checkpoints are removed, so another one begins."""
    _written(tmp_path, "mixed_bfloat16")
    assert _continued(tmp_path, **changed) == {}


def test_one_that_stopped_is_continued_or_refused(tmp_path):
    _written(tmp_path, "mixed_bfloat16", step=5, finished=False)
    assert _continued(tmp_path, train_model="resnet20")["train_model"] == AUTO.train.model


def test_where_it_trains_may_change(tmp_path):
    _written(tmp_path, "mixed_bfloat16")
    found = _continued(tmp_path, parallel_strategy="mirrored", parallel_replicas=2)
    assert found["parallel_strategy"] == "one_device"
