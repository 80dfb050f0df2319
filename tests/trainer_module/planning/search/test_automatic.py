"""``parallel.strategy: auto``: what it keeps, chooses and refuses."""

import logging
from typing import Any

import numpy as np
import pytest
from chains import chain, settings
from pydantic import ValidationError
from refusals import refusal
from user_models import Subclassed

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.settings import ParallelSettings


def chosen(model: Any = None, earlier: Any = None, **given: Any) -> automatic.Resolved:
    asked = settings(**({"strategy": "auto", "virtual_devices": 4} | given))
    return automatic.resolved(asked, lambda: model or chain(4), earlier)


def test_replicas_if_the_batch_and_memory_allow_them(caplog):
    with caplog.at_level(logging.INFO):
        found = chosen()
    parallel = found.settings.parallel
    assert (parallel.strategy, parallel.replicas, parallel.stages) == ("mirrored", 4, 1)
    assert sum("auto" in each.message for each in caplog.records) == 1
    best = found.found.best
    assert best.settings["replicas"] == 4 and best.speedup == pytest.approx(4)


def test_other_strategies_stay():
    asked = settings(strategy="mirrored", replicas=2)
    assert automatic.resolved(asked, lambda: pytest.fail("built")) == (asked, None)


@pytest.mark.parametrize(
    "kept",
    [
        {"stages": 2},
        {"replicas": 2},
        {"stages": 4, "microbatch_schedule": "gpipe"},
        {"virtual_stages": 2},
        {"microbatches": 4},
        {"accumulate": 4},
        {"remat": True},
        {"zero": 1, "train": {"optimizer": "adamw"}},
        {"stages": 2, "cuts": ("layer0",)},
        {"timeline_step": 1},
        {"all_reduce": "ring"},
        {"all_reduce": "hierarchical_copy"},
    ],
    ids=str,
)
def test_what_the_settings_say_stays(kept):
    parallel = chosen(**kept).settings.parallel
    for name, value in kept.items():
        assert name == "train" or getattr(parallel, name) == value
    assert parallel.replicas * parallel.stages * parallel.shards <= 4
    assert ParallelSettings.model_validate(parallel.model_dump()) == parallel
    assert parallel.strategy != "auto"


def test_too_little_memory_for_replicas_makes_stages():
    # A layer has 1 MB of weights, of which training holds two to three more copies.
    model, given = chain(4, width=512), {"memory_mb": 9}
    parallel = chosen(model, **given).settings.parallel
    assert parallel.strategy == "grid" and parallel.stages * parallel.shards >= 2
    assert chosen(model, memory_mb=900).settings.parallel.stages == 1


def test_the_same_question_has_the_same_answer():
    first, *others = (chosen(batch_size=24) for _ in range(3))
    assert all(other == first for other in others)


def test_a_model_that_cannot_be_cut_has_replicas():
    model = Subclassed(10)
    model(np.zeros((1, 32, 32, 3), np.float32))
    parallel = chosen(model).settings.parallel
    assert parallel.strategy == "mirrored" and parallel.stages == 1


def test_named_devices_are_those_to_choose_from():
    parallel = chosen(devices="CPU:1,CPU:3,CPU:0", batch_size=4).settings.parallel
    assert parallel.devices_per_worker == len(parallel.device_names) > 1
    assert parallel.device_names == ("CPU:1", "CPU:3", "CPU:0")[: len(parallel.device_names)]


# --- resume ---


def test_a_resumed_training_keeps_its_topology():
    before = settings(replicas=2, stages=2, microbatches=4, virtual_devices=4).flat()
    again = chosen(earlier=before)
    parallel = again.settings.parallel
    assert (parallel.replicas, parallel.stages, parallel.microbatches) == (2, 2, 4)
    assert (parallel.strategy, again.found) == ("grid", None)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"replicas": 8}, {}),
        ({"replicas": 2, "stages": 2}, {"stages": 4}),
        ({"replicas": 4}, {"batch_size": 6}),
    ],
    ids=["fewer devices", "another setting", "another batch"],
)
def test_a_topology_that_is_no_longer_possible_is_not_kept(before, now):
    again = chosen(earlier=settings(**before).flat(), **now)
    assert again.found is not None
    assert again.settings.parallel.stages == now.get("stages", again.settings.parallel.stages)


# --- refusals ---


def test_one_process_only():
    error = refusal(ParallelSettings, {"strategy": "auto", "workers": 2})
    assert (error.setting, error.value) == ("parallel.workers", 2)


@pytest.mark.parametrize(
    ("given", "setting", "value"),
    [
        ({"stages": 8, "virtual_devices": 0, "devices": "CPU:0"}, None, None),
        ({"memory_mb": 1}, "parallel.memory_mb", 1.0),
        ({"microbatches": 32, "stages": 2, "replicas": 2}, None, None),
        ({"all_reduce": "hierarchical_copy", "stages": 2}, "parallel.strategy", "auto"),
    ],
    ids=["devices", "memory", "batch", "all-reduce"],
)
def test_what_is_not_possible_has_a_name(given, setting, value):
    if setting is None:
        with pytest.raises(ValidationError):
            chosen(**given)
        return
    with pytest.raises(UserError) as raised:
        chosen(chain(4, width=512), **given)
    assert (raised.value.setting, raised.value.value) == (setting, value)
    assert raised.value.suggestion


def test_more_stages_than_devices():
    with pytest.raises(SettingError) as raised:
        automatic.resolved(
            settings(strategy="auto", stages=3, replicas=2, devices="CPU:0,CPU:1,CPU:2,CPU:3,CPU:4,"
                     "CPU:5", virtual_devices=6).model_copy(
                update={"parallel": ParallelSettings(strategy="auto", stages=64)}
            ),
            lambda: chain(4),
        )  # fmt: skip
    assert (raised.value.setting, raised.value.value) == ("parallel.stages", 64)


def test_nothing_trains_under_auto_itself():
    with pytest.raises(SettingError) as raised:
        topology.resolve(ParallelSettings(strategy="auto"))
    assert (raised.value.setting, raised.value.value) == ("parallel.strategy", "auto")


# --- accelerators ---


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("Tesla T4", "T4-16GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA A10", "A10-24GB"),
        ("NVIDIA A100", None),
        ("NVIDIA GeForce RTX 3090", None),
        ("", None),
    ],
)
def test_accelerators_by_the_names_of_their_vendors(device, name):
    found = automatic.named(device)
    assert (found and found.name) == name


def test_a_cpu_is_no_accelerator():
    assert automatic.present("CPU:0") is None
    assert chosen().found.times == "flops"
