import pathlib
from typing import Any

import pytest

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

BOUND: dict[str, Any] = {
    "train_model": "resnet20",
    "train_model_args": '{"width": 8}',
    "train_batch_size": 64,
    "train_optimizer": "adamw",
    "train_learning_rate": 0.5,
    "train_momentum": 0.5,
    "train_weight_decay": 0.5,
    "train_clip_norm": 0.5,
    "train_clip_value": 0.5,
    "train_gradient_noise": 0.5,
    "train_optimizer_args": '{"nesterov": false}',
    "train_schedule_args": '{"factor": 0.5}',
    "train_frozen": '["head"]',
    "train_freeze_after": '{"head": 0.5}',
    "train_learning_rate_multipliers": '{"head": 2}',
    "train_weight_decay_exclude": '["head"]',
    "train_schedule": "one_cycle",
    "train_warmup_steps": 5,
    "train_loss": "huber",
    "train_loss_args": '{"delta": 0.5}',
    "train_loss_weights": '{"a": 0.5}',
    "train_label_smoothing": 0.5,
    "train_ema_decay": 0.5,
    "train_lookahead": 5,
    "train_augment": "flip",
    "train_mix_alpha": 0.2,
    "train_initial_weights_skip": "head",
    "train_seed": 5,
    "train_window_weights": "[1.0, 2.0]",
    "parallel_precision": "mixed_bfloat16",
}
FREE: dict[str, Any] = {
    "train_eval_batch_size": 100,
    "train_memory_limit_mb": 5,
    "train_eval_every": 5,
    "train_checkpoint_every": 5,
    "train_export_keras": 1,
    "train_keep": 5,
    "train_early_stopping_patience": 5,
    "train_callbacks": "mine:Printer",
    "train_resume_id": "other",
    "train_test_time_augment": "flip",
    "train_initial_weights": "other.keras",
    "train_warm_start": '{"epochs": 1}',
    "parallel_strategy": "mirrored",
    "parallel_replicas": 2,
    "parallel_virtual_devices": 4,
    "parallel_accumulate": 2,
    "parallel_jit": 1,
    "parallel_remat": 1,
}
"""Another value for each setting whose rule is its name."""


def _flat(total: int = 100, **train: Any) -> dict[str, Any]:
    return resume.resolved(TrainingSettings.model_validate({"train": train}).flat(), total)


@pytest.mark.parametrize(("name", "value"), (BOUND | FREE).items())
def test_a_setting_by_its_name(name, value):
    before = _flat()
    assert before.get(name) != value
    expected = [resume.Change(name, before.get(name), value)] if name in BOUND else []
    assert resume.changes(before, before | {name: value}, done=10) == expected


def test_every_setting_has_a_rule():
    by_value = {"train_steps", "train_shuffle", "train_shuffle_buffer"}
    # What is None is not in the flat settings; epochs are told as steps.
    train = {f"train_{name}" for name in TrainSettings.model_fields if name != "epochs"}
    free = {name for name in FREE if name.startswith("train_")}
    assert train == {name for name in BOUND if name.startswith("train_")} | free | by_value
    assert free == resume.FREE


@pytest.mark.parametrize(
    ("schedule", "before", "now", "done", "can"),
    [
        ("cosine", 100, 100, 50, True),
        ("cosine", 100, 200, 50, False),
        ("one_cycle", 100, 200, 50, False),
        ("constant", 100, 200, 50, True),
        ("constant", 100, 200, 100, True),
        ("constant", 100, 70, 50, True),
        ("constant", 100, 50, 50, True),
        ("constant", 100, 49, 50, False),
    ],
)
def test_the_number_of_steps(schedule, before, now, done, can):
    changed = resume.changes(_flat(before, schedule=schedule), _flat(now, schedule=schedule), done)
    assert changed == ([] if can else [resume.Change("train_steps", before, now)])


@pytest.mark.parametrize("lookahead", [0, 5])
def test_the_number_of_steps_with_lookahead(lookahead):
    before, now = (_flat(total, schedule="constant", lookahead=lookahead) for total in (100, 200))
    expected = [resume.Change("train_steps", 100, 200)] if lookahead else []
    assert resume.changes(before, now, done=50) == expected


def test_steps_count_however_they_were_asked_for():
    assert resume.changes(_flat(100, steps=100), _flat(100, epochs=2.0), done=10) == []


@pytest.mark.parametrize(
    ("before", "now", "can"),
    [
        ("auto", "memory", True),
        ("stream", "auto", True),
        ("memory", "stream", False),
        ("stream", "memory", False),
    ],
)
def test_the_shuffle(before, now, can):
    changed = resume.changes(_flat(shuffle=before), _flat(shuffle=now), done=10)
    assert (not changed) is can


@pytest.mark.parametrize(("shuffle", "can"), [("auto", True), ("memory", True), ("stream", False)])
def test_the_shuffle_buffer(shuffle, can):
    before, now = (_flat(shuffle=shuffle, shuffle_buffer=size) for size in (10, 20))
    assert (not resume.changes(before, now, done=10)) is can


def test_the_refusal_names_all_changes_and_a_remedy():
    before, now = _flat(100, learning_rate=0.1), _flat(200, learning_rate=0.2)
    changed = resume.changes(before, now, 50)
    error = resume.OtherTrainingError(pathlib.Path("/the/root"), 50, changed)
    assert (error.file, error.setting, error.value) == ("/the/root", "train.learning_rate", 0.2)
    assert "train.epochs" in str(error) and "train.resume_id" in str(error)
