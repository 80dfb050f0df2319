import pathlib
from typing import Any

import pytest

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

OTHER: dict[str, dict[str, Any]] = {
    "train": {
        "model": "resnet20",
        "batch_size": 64,
        "eval_batch_size": 100,
        "optimizer": "adamw",
        "learning_rate": 0.5,
        "momentum": 0.5,
        "weight_decay": 0.5,
        "clip_norm": 0.5,
        "schedule": "one_cycle",
        "warmup_steps": 5,
        "label_smoothing": 0.5,
        "ema_decay": 0.5,
        "augment": "flip",
        "memory_limit_mb": 5,
        "eval_every": 5,
        "checkpoint_every": 5,
        "keep": 5,
        "resume_id": "other",
        "initial_weights": "other.keras",
        "initial_weights_skip": "head",
        "seed": 5,
    },
    "parallel": {
        "strategy": "mirrored",
        "replicas": 2,
        "virtual_devices": 4,
        "accumulate": 2,
        "precision": "mixed_bfloat16",
        "jit": 1,
        "remat": 1,
    },
}
"""Another value for each setting whose rule is its name."""

BOUND = {
    "train_model",
    "train_batch_size",
    "train_optimizer",
    "train_learning_rate",
    "train_momentum",
    "train_weight_decay",
    "train_clip_norm",
    "train_schedule",
    "train_warmup_steps",
    "train_label_smoothing",
    "train_ema_decay",
    "train_augment",
    "train_initial_weights_skip",
    "train_seed",
    "parallel_precision",
}


def _flat(total: int = 100, **train: Any) -> dict[str, Any]:
    return resume.resolved(TrainingSettings.model_validate({"train": train}).flat(), total)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [(section, name, value) for section in OTHER for name, value in OTHER[section].items()],
)
def test_a_setting_by_its_name(section, name, value):
    before, flat = _flat(), f"{section}_{name}"
    assert before.get(flat) != value
    bound = flat in BOUND
    expected = [resume.Change(flat, before.get(flat), value)] if bound else []
    assert resume.changes(before, before | {flat: value}, done=10) == expected


def test_every_setting_has_a_rule():
    by_value = {"train_steps", "train_shuffle", "train_shuffle_buffer"}
    # What is None is not in the flat settings; epochs are told as steps.
    train = {f"train_{name}" for name in TrainSettings.model_fields if name != "epochs"}
    ruled = {f"train_{name}" for name in OTHER["train"]}
    assert train == ruled | by_value
    assert train - by_value - BOUND == resume.FREE


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


def test_the_refusal_names_all_changes_and_a_remedy(messages):
    before, now = _flat(100, learning_rate=0.1), _flat(200, learning_rate=0.2)
    error = resume.refusal(pathlib.Path("/the/root"), 50, resume.changes(before, now, 50))
    messages.check(error)
    assert (error.file, error.setting, error.value) == ("/the/root", "train.learning_rate", 0.2)
