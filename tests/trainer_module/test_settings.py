from typing import Any

import pytest
from pydantic import ValidationError
from refusals import refusal

from stagecraft.common.settings import structured
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


def rule(
    asked: dict[str, Any], named: str = "", **change: Any
) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """What was asked for, the field and value that are named, and the change that is suggested.

    The field is the last one of ``asked`` where ``named`` does not say.
    """
    return asked, named or f"{[*asked][-1]}: {_text([*asked.values()][-1])}", change


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


RULES = {
    "stages under mirrored": rule(MIRRORED | {"stages": 3}, strategy="grid"),
    "stages under one_device": rule({"stages": 2}, strategy="grid"),
    "microbatches under mirrored": rule(
        MIRRORED | {"accumulate": 2, "microbatches": 4}, microbatches=1, accumulate=8
    ),
    "cuts of one stage": rule(GRID | {"cuts": "a"}, stages=2),
    "cuts of one stage, other way": rule(GRID | {"cuts": "a,b"}, cuts="auto"),
    "cuts without a grid": rule({"cuts": "a"}, cuts="auto"),
    "too few cuts": rule(GRID | {"stages": 3, "cuts": "a"}, stages=2),
    "too many cuts": rule(GRID | {"stages": 2, "cuts": ["a", "b"]}, named="cuts: a,b", stages=3),
    "a cut twice": rule(GRID | {"stages": 3, "cuts": "a,a"}, cuts="auto"),
    "an empty cut": rule(GRID | {"stages": 3, "cuts": "a,"}, cuts="auto"),
    "replicas of one_device": rule({"replicas": 2}, strategy="mirrored"),
    "replicas of one_device, other way": rule({"replicas": 2}, replicas=1),
    "replicas of parameter_server": rule(PS | {"replicas": 2}, replicas=1, workers=4),
    "replicas of a worker on CPUs": rule(
        WORKERS | {"virtual_devices": 2, "replicas": 2}, replicas=1, workers=4
    ),
    "replicas of a worker on named CPUs": rule(
        WORKERS | {"devices": "CPU:0,CPU:1", "replicas": 2}, replicas=1, workers=4, devices="CPU:0"
    ),
    "workers of mirrored": rule(MIRRORED | {"workers": 2}, workers=1),
    "workers of mirrored, other way": rule(
        MIRRORED | {"workers": 2}, strategy="multi_worker_mirrored", workers=2
    ),
    "workers of one_device": rule({"workers": 4}, strategy="multi_worker_mirrored"),
    "workers of tpu": rule(TPU | {"workers": 4}, workers=1),
    "too few virtual_devices": rule(
        MIRRORED | {"replicas": 4, "virtual_devices": 2}, virtual_devices=4
    ),
    "too few virtual_devices of a grid": rule(
        GRID | {"replicas": 2, "stages": 3, "virtual_devices": 2}, virtual_devices=6
    ),
    "virtual_devices of tpu": rule(TPU | {"virtual_devices": 8}, virtual_devices=0),
    "too few devices": rule(
        GRID | {"replicas": 2, "stages": 2, "devices": "GPU:0,GPU:1"}, devices="auto"
    ),
    "too many devices": rule({"devices": "GPU:0,GPU:1"}, devices="auto"),
    "no device": rule({"devices": "TPU:0"}, devices="auto"),
    "no device but auto": rule(
        MIRRORED | {"devices": "auto,GPU:0"}, named="devices: auto", devices="auto"
    ),
    "a device twice": rule(
        MIRRORED | {"devices": "GPU:0,/gpu:0"}, named="devices: GPU:0,GPU:0", devices="auto"
    ),
    "mixed devices": rule(MIRRORED | {"devices": "CPU:0,GPU:0"}, devices="auto"),
    "mixed devices of a stage": rule(
        GRID | {"replicas": 2, "stages": 2, "devices": "CPU:0,GPU:0,GPU:1,GPU:2"}, devices="auto"
    ),
    "devices of tpu": rule(TPU | {"devices": "GPU:0"}, devices="auto"),
    "virtual_devices and GPUs": rule({"devices": "GPU:0", "virtual_devices": 2}, virtual_devices=0),
    "no such CPU": rule(MIRRORED | {"devices": "CPU:0,CPU:1"}, virtual_devices=2),
    "no such virtual CPU": rule(
        MIRRORED | {"virtual_devices": 2, "devices": "CPU:0,CPU:3"}, virtual_devices=4
    ),
    "a worker's other CPU": rule(
        WORKERS | {"virtual_devices": 2, "devices": "CPU:1"}, devices="CPU:0"
    ),
    "all_reduce of mirrored": rule(MIRRORED | {"all_reduce": "ring"}, all_reduce="auto"),
    "all_reduce of a grid": rule(GRID | {"all_reduce": "hierarchical_copy"}, all_reduce="auto"),
    "all_reduce between workers": rule(WORKERS | {"all_reduce": "one_device"}, all_reduce="auto"),
    "all_reduce of tpu": rule(TPU | {"all_reduce": "nccl"}, all_reduce="auto"),
    "nccl and virtual_devices": rule(
        MIRRORED | {"virtual_devices": 2, "all_reduce": "nccl"}, all_reduce="auto"
    ),
    "nccl and CPUs": rule(GRID | {"devices": "CPU:0", "all_reduce": "nccl"}, all_reduce="auto"),
    "mixed_float16 of parameter_server": rule(
        PS | {"precision": "mixed_float16"}, precision="mixed_bfloat16"
    ),
    "mixed_float16 of tpu": rule(TPU | {"precision": "mixed_float16"}, precision="mixed_bfloat16"),
    "float64 of tpu": rule(TPU | {"precision": "float64"}, precision="float32"),
    "memory without a grid": rule(MIRRORED | {"memory_mb": 100}, strategy="grid"),
    "memory without a grid, other way": rule({"memory_mb": 100}, memory_mb=0),
    "a timeline without stages": rule(MIRRORED | {"timeline_step": 5}, strategy="grid"),
    "a timeline without stages, other way": rule({"timeline_step": 5}, timeline_step=0),
    "a profile that ends before it begins": rule({"profile_steps": "20:10"}, profile_steps="10:20"),
    "a profile of the timeline's step": rule(
        {"strategy": "grid", "stages": 2, "profile_steps": "5:6", "timeline_step": 5},
        profile_steps="6:6",
    ),
    "jit of tpu": rule(TPU | {"jit": True}, jit=False),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_names_the_field_and_a_value_that_works(rule):
    asked, field, change = RULES[rule]
    error = refusal(ParallelSettings, asked)
    value = ",".join(error.value) if isinstance(error.value, tuple) else error.value
    assert f"{error.setting}: {value}" == f"parallel.{field}"
    for name, value in change.items():
        if asked.get(name) == value:  # as it was
            continue
        assert f"parallel.{name}: {_text(value)}" in error.suggestion
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
def test_a_batch_that_cannot_be_split(parallel, size, product, fits):
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
        GRID | {"replicas": 2, "stages": 2, "microbatches": 4, "accumulate": 2, "remat": True},
        GRID | {"stages": 3, "cuts": "a,b", "devices": "GPU:2,GPU:0,GPU:1"},
        GRID | {"stages": 2, "devices": "CPU:0,GPU:0"},
        MIRRORED | {"all_reduce": "hierarchical_copy", "precision": "mixed_float16"},
        WORKERS | {"replicas": 2, "all_reduce": "ring"},
        PS | {"accumulate": 4, "jit": True, "precision": "mixed_bfloat16"},
        {"strategy": "central_storage", "replicas": 2, "jit": True},
        {"precision": "float64", "accumulate": 8, "jit": True, "remat": True},
    ],
)
def test_what_goes_together(parallel):
    ParallelSettings.model_validate(parallel)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("auto", ()),
        (" auto ", ()),
        ('["auto"]', ()),
        (None, ()),
        ([], ()),
        (["GPU:2", "GPU:0"], ("GPU:2", "GPU:0")),
        ("/gpu:1, gpu:0", ("GPU:1", "GPU:0")),
        ("/device:GPU:1,GPU:00", ("GPU:1", "GPU:0")),
        ('["GPU:1", "gpu:0"]', ("GPU:1", "GPU:0")),
    ],
)
def test_devices_in_many_spellings(given, names):
    parallel = ParallelSettings.model_validate(MIRRORED | {"devices": given})
    assert parallel.devices == (names or "auto")
    assert parallel.device_names == names


@pytest.mark.parametrize("given", [["add_3", "add_6"], "add_3,add_6", "add_3, add_6"])
def test_cuts_in_many_spellings(given):
    parallel = ParallelSettings.model_validate(GRID | {"stages": 3, "cuts": given})
    assert parallel.cuts == parallel.cut_names == ("add_3", "add_6")


@pytest.mark.parametrize("given", ["[a,b]", "[a", "a,,b", "", 7, ["a", ""]])
def test_names_that_are_none(given):
    error = refusal(ParallelSettings, GRID | {"cuts": given})
    assert error.setting == "parallel.cuts" and error.value is not None


def test_settings_travel_flat_and_come_back():
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


def test_parts_of_a_batch():
    assert ParallelSettings().parts == 1
    assert ParallelSettings.model_validate(WORKERS | {"replicas": 3, "accumulate": 5}).parts == 30
    assert ParallelSettings.model_validate(PS | {"accumulate": 5}).parts == 5
    grid = GRID | {"replicas": 2, "stages": 3, "accumulate": 5, "microbatches": 7}
    assert ParallelSettings.model_validate(grid).parts == 70


def test_clip_norm_is_no_negative_number():
    assert TrainSettings().clip_norm == 0
    with pytest.raises(ValidationError, match="clip_norm"):
        TrainSettings(clip_norm=-1)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"initial_weights": "s3://bucket/m.keras"}, "s3://bucket/m.keras is a URI"),
        ({"initial_weights_skip": "head"}, "skips nothing without train.initial_weights"),
        ({"initial_weights": 3}, "valid string"),
        ({"initial_weights": "m.keras", "initial_weights_skip": [1]}, "not a list of names"),
    ],
)
def test_initial_weights_that_cannot_be(train, said):
    with pytest.raises(ValidationError, match=said):
        TrainSettings(**train)


@pytest.mark.parametrize("skip", ["head, */bias", ["head", "*/bias"], "head/,, */bias,"])
def test_initial_weights_travel_flat(skip):
    settings = TrainingSettings.model_validate(
        {"train": {"initial_weights": "m.keras", "initial_weights_skip": skip}}
    )
    assert settings.train.initial_weights_skip == ("head", "*/bias")
    flat = settings.flat()
    assert flat["train_initial_weights_skip"] == '["head", "*/bias"]'
    assert TrainingSettings.from_flat(flat) == settings
    blank = settings.train.without_initial_weights()
    assert (blank.initial_weights, blank.initial_weights_skip) == (None, ())


def test_without_initial_weights_nothing_travels():
    for nothing in ({}, {"initial_weights": "", "initial_weights_skip": ""}):
        settings = TrainingSettings.model_validate({"train": nothing})
        assert not [name for name in settings.flat() if "initial" in name]


@pytest.mark.parametrize("name", ["regression", "taxi", "language_model"])
def test_augment_of_a_task_that_does_not_augment(name):
    task = {"name": name}
    assert TrainingSettings.model_validate({"task": task}).train.augment == ()
    kept = TrainingSettings.model_validate({"task": task, "train": {"augment": "none"}})
    assert TrainingSettings.from_flat(kept.flat()) == kept
    error = refusal(TrainingSettings, {"task": task, "train": {"augment": "flip"}})
    assert (error.setting, error.value) == ("train.augment", "flip")
    assert error.suggestion == "train.augment: none"


def test_augment_of_a_task_that_augments():
    settings = TrainingSettings.model_validate({"task": {"name": "segmentation"}})
    assert settings.train.augment == ("crop", "flip")


TABLE = {"name": "regression", "args": {"features": {"a": "numeric"}, "label": "b"}}


@pytest.mark.parametrize(
    ("task", "train", "expected"),
    [
        (TABLE, {}, ("dnn_64_32", "adamw", 0.003, "one_cycle", 32, 30)),
        (TABLE, {"optimizer": "sgd"}, ("dnn_64_32", "sgd", 0.02, "cosine", 32, 30)),
        (TABLE, {"steps": 7, "learning_rate": 1}, ("dnn_64_32", "adamw", 1, "one_cycle", 32, None)),
        ({"name": "taxi"}, {"epochs": 2}, ("dnn_64_32", "adamw", 0.003, "one_cycle", 32, 2)),
        ({"name": "image_classification"}, {}, ("cnn", "sgd", 0.02, "cosine", 128, None)),
    ],
)
def test_a_table_has_defaults_of_its_own(task, train, expected):
    found = TrainingSettings.model_validate({"task": task, "train": train})
    names = ("model", "optimizer", "learning_rate", "schedule", "batch_size", "epochs")
    assert tuple(getattr(found.train, name) for name in names) == expected
    assert TrainingSettings.from_flat(found.flat()) == found


@pytest.mark.parametrize(
    "train",
    [
        {"loss_args": {"delta": {"a": ["https://me:pass@host/x"]}}},
        {"learning_rate_multipliers": {"https://me:pass@host": 2}},
        {"schedule_args": {"b": [2**63]}},
    ],
)
def test_mappings_have_no_credentials_and_no_long_numbers(train):
    with pytest.raises(ValidationError) as caught:
        TrainSettings(**train)
    (problem,) = caught.value.errors(include_input=False)
    assert problem["loc"] == tuple(train) and "pass@" not in problem["msg"]


@pytest.mark.parametrize("loss", [{}, {1: "mse"}, {"a": 3}, []])
def test_losses_that_are_none(loss):
    assert refusal(TrainSettings, {"loss": loss}).setting == "train.loss"


def test_the_order_of_a_task_s_arguments_does_not_count():
    args = {"features": {"a": "numeric"}, "label": "b"}
    one, other = (
        TrainingSettings.model_validate({"task": {"name": "regression", "args": given}}).flat()
        for given in (args, dict(reversed(args.items())))
    )
    assert one == other


@pytest.mark.parametrize(
    ("value", "expected"), [("auto", "auto"), ("a,b", "a,b"), ('["a", "b"]', ["a", "b"])]
)
def test_a_flat_value_is_that_of_yaml(value, expected):
    assert TrainingSettings.parsed("parallel_cuts", value) == expected


def test_only_json_of_a_mapping_or_a_list_is_parsed():
    fields = TrainSettings.model_fields
    for name, value, expected in (
        ("initial_weights", "[old]/w.keras", "[old]/w.keras"),
        ("frozen", '["a", "b"]', ["a", "b"]),
        ("loss", '{"a": "mse"}', {"a": "mse"}),
        ("loss", "mse", "mse"),
    ):
        assert structured(value, fields[name].annotation) == expected
