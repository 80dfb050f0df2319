"""Every rule refuses with the field and a value that would work, and that value works."""

from __future__ import annotations

from typing import Any

import pytest
from messages import Messages
from pydantic import BaseModel, ValidationError

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.registries import STRATEGIES
from stagecraft.trainer_module.settings import (
    ParallelSettings,
    TrainingSettings,
    TrainSettings,
)

GRID = {"strategy": "grid"}
MIRRORED = {"strategy": "mirrored", "replicas": 2}
PS = {"strategy": "parameter_server", "workers": 2}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
TPU = {"strategy": "tpu", "replicas": 8}


def refusal(model: type[BaseModel], values: dict[str, Any]) -> SettingError:
    """The one error that pydantic collects."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(values)
    (problem,) = caught.value.errors()
    error = problem["ctx"]["error"]
    assert isinstance(error, SettingError)
    return error


# What was asked for, the field that is named, and the change that is suggested.
RULES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "stages under mirrored": (
        MIRRORED | {"stages": 3},
        "stages: 3",
        {"strategy": "grid"},
    ),
    "stages under one_device": ({"stages": 2}, "stages: 2", {"strategy": "grid"}),
    "microbatches under mirrored": (
        MIRRORED | {"microbatches": 4, "accumulate": 2},
        "microbatches: 4",
        {"microbatches": 1, "accumulate": 8},
    ),
    "cuts of one stage": (GRID | {"cuts": "a"}, "cuts: a", {"stages": 2}),
    "cuts of one stage, other way": (GRID | {"cuts": "a,b"}, "cuts: a,b", {"cuts": "auto"}),
    "cuts without a grid": ({"cuts": "a"}, "cuts: a", {"cuts": "auto"}),
    "too few cuts": (GRID | {"stages": 3, "cuts": "a"}, "cuts: a", {"stages": 2}),
    "too many cuts": (GRID | {"stages": 2, "cuts": ["a", "b"]}, "cuts: a,b", {"stages": 3}),
    "a cut twice": (GRID | {"stages": 3, "cuts": "a,a"}, "cuts: a,a", {"cuts": "auto"}),
    "an empty cut": (GRID | {"stages": 3, "cuts": "a,"}, "cuts: a,", {"cuts": "auto"}),
    "replicas of one_device": ({"replicas": 2}, "replicas: 2", {"strategy": "mirrored"}),
    "replicas of one_device, other way": ({"replicas": 2}, "replicas: 2", {"replicas": 1}),
    "replicas of parameter_server": (
        PS | {"replicas": 2},
        "replicas: 2",
        {"replicas": 1, "workers": 4},
    ),
    "replicas of a worker on CPUs": (
        WORKERS | {"replicas": 2, "virtual_devices": 2},
        "replicas: 2",
        {"replicas": 1, "workers": 4},
    ),
    "replicas of a worker on named CPUs": (
        WORKERS | {"replicas": 2, "devices": "CPU:0,CPU:1"},
        "replicas: 2",
        {"replicas": 1, "workers": 4, "devices": "CPU:0"},
    ),
    "workers of mirrored": (MIRRORED | {"workers": 2}, "workers: 2", {"workers": 1}),
    "workers of mirrored, other way": (
        MIRRORED | {"workers": 2},
        "workers: 2",
        {"strategy": "multi_worker_mirrored", "workers": 2},
    ),
    "workers of one_device": (
        {"workers": 4},
        "workers: 4",
        {"strategy": "multi_worker_mirrored"},
    ),
    "workers of tpu": (TPU | {"workers": 4}, "workers: 4", {"workers": 1}),
    "too few virtual_devices": (
        MIRRORED | {"replicas": 4, "virtual_devices": 2},
        "virtual_devices: 2",
        {"virtual_devices": 4},
    ),
    "too few virtual_devices of a grid": (
        GRID | {"replicas": 2, "stages": 3, "virtual_devices": 2},
        "virtual_devices: 2",
        {"virtual_devices": 6},
    ),
    "virtual_devices of tpu": (
        TPU | {"virtual_devices": 8},
        "virtual_devices: 8",
        {"virtual_devices": 0},
    ),
    "too few devices": (
        GRID | {"replicas": 2, "stages": 2, "devices": "GPU:0,GPU:1"},
        "devices: GPU:0,GPU:1",
        {"devices": "auto"},
    ),
    "too many devices": ({"devices": "GPU:0,GPU:1"}, "devices: GPU:0,GPU:1", {"devices": "auto"}),
    "no device": ({"devices": "TPU:0"}, "devices: TPU:0", {"devices": "auto"}),
    "no device but auto": (
        MIRRORED | {"devices": "auto,GPU:0"},
        "devices: auto",
        {"devices": "auto"},
    ),
    "a device twice": (
        MIRRORED | {"devices": "GPU:0,/gpu:0"},
        "devices: GPU:0,GPU:0",
        {"devices": "auto"},
    ),
    "mixed devices": (
        MIRRORED | {"devices": "CPU:0,GPU:0"},
        "devices: CPU:0,GPU:0",
        {"devices": "auto"},
    ),
    "mixed devices of a stage": (
        GRID | {"replicas": 2, "stages": 2, "devices": "CPU:0,GPU:0,GPU:1,GPU:2"},
        "devices: CPU:0,GPU:0,GPU:1,GPU:2",
        {"devices": "auto"},
    ),
    "devices of tpu": (TPU | {"devices": "GPU:0"}, "devices: GPU:0", {"devices": "auto"}),
    "virtual_devices and GPUs": (
        {"virtual_devices": 2, "devices": "GPU:0"},
        "virtual_devices: 2",
        {"virtual_devices": 0},
    ),
    "no such CPU": (
        MIRRORED | {"devices": "CPU:0,CPU:1"},
        "devices: CPU:0,CPU:1",
        {"virtual_devices": 2},
    ),
    "no such virtual CPU": (
        MIRRORED | {"devices": "CPU:0,CPU:3", "virtual_devices": 2},
        "devices: CPU:0,CPU:3",
        {"virtual_devices": 4},
    ),
    "a worker's other CPU": (
        WORKERS | {"devices": "CPU:1", "virtual_devices": 2},
        "devices: CPU:1",
        {"devices": "CPU:0"},
    ),
    "all_reduce of mirrored": (
        MIRRORED | {"all_reduce": "ring"},
        "all_reduce: ring",
        {"all_reduce": "auto"},
    ),
    "all_reduce of a grid": (
        GRID | {"all_reduce": "hierarchical_copy"},
        "all_reduce: hierarchical_copy",
        {"all_reduce": "auto"},
    ),
    "all_reduce between workers": (
        WORKERS | {"all_reduce": "one_device"},
        "all_reduce: one_device",
        {"all_reduce": "auto"},
    ),
    "all_reduce of tpu": (TPU | {"all_reduce": "nccl"}, "all_reduce: nccl", {"all_reduce": "auto"}),
    "nccl and virtual_devices": (
        MIRRORED | {"all_reduce": "nccl", "virtual_devices": 2},
        "all_reduce: nccl",
        {"all_reduce": "auto"},
    ),
    "nccl and CPUs": (
        GRID | {"all_reduce": "nccl", "devices": "CPU:0"},
        "all_reduce: nccl",
        {"all_reduce": "auto"},
    ),
    "mixed_float16 of parameter_server": (
        PS | {"precision": "mixed_float16"},
        "precision: mixed_float16",
        {"precision": "mixed_bfloat16"},
    ),
    "mixed_float16 of tpu": (
        TPU | {"precision": "mixed_float16"},
        "precision: mixed_float16",
        {"precision": "mixed_bfloat16"},
    ),
    "float64 of tpu": (
        TPU | {"precision": "float64"},
        "precision: float64",
        {"precision": "float32"},
    ),
    "memory without a grid": (
        MIRRORED | {"memory_mb": 100},
        "memory_mb: 100",
        {"strategy": "grid"},
    ),
    "memory without a grid, other way": (
        {"memory_mb": 100},
        "memory_mb: 100",
        {"memory_mb": 0},
    ),
    "a timeline without stages": (
        MIRRORED | {"timeline_step": 5},
        "timeline_step: 5",
        {"strategy": "grid"},
    ),
    "a timeline without stages, other way": (
        {"timeline_step": 5},
        "timeline_step: 5",
        {"timeline_step": 0},
    ),
    "a profile that ends before it begins": (
        {"profile_steps": "20:10"},
        "profile_steps: 20:10",
        {"profile_steps": "10:20"},
    ),
    "a profile of the timeline's step": (
        {"strategy": "grid", "stages": 2, "timeline_step": 5, "profile_steps": "5:6"},
        "timeline_step: 5",
        {"profile_steps": "6:6"},
    ),
    "jit of tpu": (TPU | {"jit": True}, "jit: true", {"jit": False}),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_names_the_field_and_a_value_that_works(rule: str, messages: Messages) -> None:
    asked, field, change = RULES[rule]
    error = refusal(ParallelSettings, asked)
    assert f"{error.setting.removeprefix('parallel.')}: {error.value}" == field
    for name, value in change.items():
        if asked.get(name) == value:  # as it was
            continue
        text = str(value).lower() if isinstance(value, bool) else value
        assert f"{name}: {text}" in error.suggestion
    messages.check(error)
    ParallelSettings.model_validate(asked | change)


BATCHES: list[tuple[dict[str, Any], int, str, int]] = [
    ({"strategy": "mirrored", "replicas": 3}, 64, "parallel.replicas: 3", 63),
    ({"accumulate": 4}, 3, "parallel.accumulate: 4", 4),
    (
        GRID | {"replicas": 2, "stages": 2, "accumulate": 3, "microbatches": 4},
        100,
        "parallel.replicas: 2 × parallel.accumulate: 3 × parallel.microbatches: 4 = 24",
        96,
    ),
    (WORKERS | {"replicas": 2}, 6, "parallel.workers: 2 × parallel.replicas: 2 = 4", 4),
    (
        GRID | {"workers": 2, "replicas": 2, "stages": 2, "microbatches": 2},
        12,
        "parallel.workers: 2 × parallel.replicas: 2 × parallel.microbatches: 2 = 8",
        8,
    ),
    (PS | {"workers": 3, "accumulate": 2}, 9, "of parallel.accumulate: 2", 8),
]


@pytest.mark.parametrize(("parallel", "size", "product", "fits"), BATCHES)
def test_a_batch_that_cannot_be_split(
    parallel: dict[str, Any], size: int, product: str, fits: int
) -> None:
    def make(batch_size: int) -> TrainingSettings:
        return TrainingSettings.model_validate(
            {"train": {"batch_size": batch_size}, "parallel": parallel}
        )

    error = refusal(TrainingSettings, {"train": {"batch_size": size}, "parallel": parallel})
    assert (error.setting, error.value) == ("train.batch_size", size)
    assert product in str(error)
    assert error.suggestion == f"train.batch_size: {fits}"
    assert make(fits).train.batch_size % make(fits).parallel.parts == 0


@pytest.mark.parametrize(
    "parallel",
    [
        *({"strategy": strategy} for strategy in STRATEGIES.names()),
        GRID | {"replicas": 4},
        GRID | {"replicas": 2, "stages": 2, "microbatches": 4, "accumulate": 2, "remat": True},
        GRID | {"stages": 3, "cuts": "a,b", "devices": "GPU:2,GPU:0,GPU:1"},
        GRID | {"stages": 2, "devices": "CPU:0,GPU:0"},
        GRID | {"replicas": 2, "all_reduce": "nccl"},
        MIRRORED | {"all_reduce": "hierarchical_copy", "precision": "mixed_float16"},
        WORKERS | {"replicas": 2, "all_reduce": "ring"},
        WORKERS | {"virtual_devices": 1},
        PS | {"accumulate": 4, "jit": True, "precision": "mixed_bfloat16"},
        {"strategy": "central_storage", "replicas": 2, "jit": True},
        {"precision": "float64", "accumulate": 8, "jit": True, "remat": True},
    ],
)
def test_what_goes_together(parallel: dict[str, Any]) -> None:
    ParallelSettings.model_validate(parallel)


@pytest.mark.parametrize(
    ("given", "stored", "names"),
    [
        ("auto", "auto", ()),
        (None, "auto", ()),
        (["GPU:2", "GPU:0"], "GPU:2,GPU:0", ("GPU:2", "GPU:0")),
        ("/gpu:1, gpu:0", "GPU:1,GPU:0", ("GPU:1", "GPU:0")),
        ("/device:GPU:1,GPU:00", "GPU:1,GPU:0", ("GPU:1", "GPU:0")),
    ],
)
def test_devices_in_many_spellings(given: Any, stored: str, names: tuple[str, ...]) -> None:
    parallel = ParallelSettings.model_validate(MIRRORED | {"devices": given})
    assert parallel.devices == stored
    assert parallel.device_names == names


@pytest.mark.parametrize("given", [["add_3", "add_6"], "add_3,add_6", "add_3, add_6"])
def test_cuts_in_many_spellings(given: Any) -> None:
    parallel = ParallelSettings.model_validate(GRID | {"stages": 3, "cuts": given})
    assert parallel.cuts == "add_3,add_6"
    assert parallel.cut_names == ("add_3", "add_6")


def test_settings_travel_flat_and_come_back() -> None:
    settings = TrainingSettings(
        train=TrainSettings(batch_size=48, clip_norm=1.5),
        parallel=ParallelSettings.model_validate(
            GRID
            | {"replicas": 2, "stages": 2, "cuts": ["a"], "microbatches": 4, "jit": True}
            | {"devices": ["gpu:0", "gpu:1", "gpu:2", "gpu:3"], "precision": "mixed_bfloat16"}
        ),
    )
    flat = settings.flat()
    assert all(type(value) in (int, float, str) for value in flat.values())
    assert TrainingSettings.from_flat(flat) == settings


def test_parts_of_a_batch() -> None:
    assert ParallelSettings().parts == 1
    assert ParallelSettings.model_validate(WORKERS | {"replicas": 3, "accumulate": 5}).parts == 30
    assert ParallelSettings.model_validate(PS | {"accumulate": 5}).parts == 5
    grid = GRID | {"replicas": 2, "stages": 3, "accumulate": 5, "microbatches": 7}
    assert ParallelSettings.model_validate(grid).parts == 70


def test_clip_norm_is_no_negative_number() -> None:
    assert TrainSettings().clip_norm == 0
    with pytest.raises(ValidationError, match="clip_norm"):
        TrainSettings(clip_norm=-1)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"initial_weights": "s3://bucket/m.keras"}, "s3://bucket/m.keras is a URI"),
        ({"initial_weights_skip": "head"}, "skips nothing without initial_weights"),
        ({"initial_weights": 3}, "valid string"),
        ({"initial_weights": "m.keras", "initial_weights_skip": [1]}, "valid string"),
    ],
)
def test_initial_weights_that_cannot_be(train: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainSettings(**train)


@pytest.mark.parametrize("skip", ["head, */bias", ["head", "*/bias"], "head/,, */bias,"])
def test_initial_weights_travel_flat(skip: Any) -> None:
    settings = TrainingSettings.model_validate(
        {"train": {"initial_weights": "m.keras", "initial_weights_skip": skip}}
    )
    assert settings.train.skipped_weights == ("head", "*/bias")
    flat = settings.flat()
    assert flat["train_initial_weights_skip"] == "head,*/bias"
    assert TrainingSettings.from_flat(flat) == settings
    blank = settings.train.without_initial_weights()
    assert (blank.initial_weights, blank.skipped_weights) == (None, ())


def test_without_initial_weights_nothing_travels() -> None:
    for nothing in ({}, {"initial_weights": "", "initial_weights_skip": ""}):
        settings = TrainingSettings.model_validate({"train": nothing})
        assert not [name for name in settings.flat() if "initial" in name]
