import pathlib
from typing import Any

import keras
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.planning import measure
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

CPU = Topology(strategy="one_device", devices=("CPU:0",))
AUTO = TrainingSettings.model_validate({"parallel": {"precision": "auto", "accumulate": 2}})


def _dense(name: str) -> keras.Model:
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(2, dtype=name)])


def _choose(
    monkeypatch: pytest.MonkeyPatch, native: bool = True, seconds: tuple[float, float] = (1, 1)
) -> measure.Choice:
    monkeypatch.setattr(measure, "native_bfloat16", lambda device: (native, "a test"))
    monkeypatch.setattr(measure, "pass_seconds", lambda models, **_: list(seconds))
    choice = measure.choose(AUTO, CPU, _dense, None)
    assert choice is not None
    return choice


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ((2.0, 1.0), "mixed_bfloat16"),
        ((1.11, 1.0), "mixed_bfloat16"),
        ((1.09, 1.0), "float32"),
        ((1.0, 3.0), "float32"),
    ],
)
def test_the_faster_one_is_chosen_if_it_is_a_tenth_faster(seconds, chosen, monkeypatch):
    choice = _choose(monkeypatch, seconds=seconds)
    assert choice.precision == chosen
    assert (choice.float32_seconds, choice.mixed_bfloat16_seconds) == seconds
    settings = measure.applied(AUTO, choice)
    assert settings.parallel.precision == chosen
    assert settings.flat()["parallel_precision"] == chosen
    assert settings.parallel.accumulate == 2


def test_a_device_without_bfloat16_times_nothing(monkeypatch):
    choice = _choose(monkeypatch, native=False)
    assert choice == measure.Choice("float32", "CPU:0 is a test")


def test_a_tpu_has_it():
    choice = measure.choose(AUTO, Topology(strategy="tpu", devices=("TPU:0",)), _dense, None)
    assert choice is not None
    assert choice.precision == "mixed_bfloat16"


def test_a_resumed_training_keeps_its_own():
    for earlier in ("float32", "mixed_bfloat16", "mixed_float16"):
        choice = measure.choose(AUTO, CPU, pytest.fail, earlier)
        assert choice is not None
        assert choice.precision == earlier


def test_settings_that_name_one_are_left_alone():
    settings = TrainingSettings.model_validate({"parallel": {"precision": "mixed_bfloat16"}})
    assert measure.choose(settings, CPU, pytest.fail, "float32") is None
    assert measure.applied(settings, None) is settings


def test_both_are_timed(monkeypatch):
    monkeypatch.setattr(measure, "native_bfloat16", lambda device: (True, "a test"))
    built: list[str] = []

    def build(name: str) -> keras.Model:
        built.append(name)
        return _dense(name)

    choice = measure.choose(AUTO, CPU, build, None)
    assert choice is not None
    assert built == ["float32", "mixed_bfloat16"]
    assert choice.float32_seconds > 0 and choice.mixed_bfloat16_seconds > 0


@pytest.mark.parametrize(
    "parallel",
    [
        {"strategy": "multi_worker_mirrored", "workers": 2},
        {"strategy": "grid", "workers": 2, "stages": 2},
        {"strategy": "parameter_server"},
        {"evaluator": True},
    ],
)
def test_several_processes_are_refused(parallel):
    error = refusal(ParallelSettings, {**parallel, "precision": "auto"})
    assert (error.setting, error.value) == ("parallel.precision", "auto")
    assert error.suggestion == "parallel.precision: mixed_bfloat16 or float32"


@pytest.mark.parametrize(
    "parallel", [{"strategy": "mirrored", "replicas": 2}, {"strategy": "grid", "stages": 2}, {}]
)
def test_one_process_chooses_on_any_topology(parallel: dict[str, Any]):
    found = ParallelSettings(**parallel, precision="auto")
    assert (found.precision, found.definite.precision) == ("auto", "float32")


def test_parity_compares_float32():
    settings = TrainingSettings.model_validate({"parallel": {"precision": "auto"}})
    for case in cases.select("mirrored-2,stages-2", settings, steps=4, batch_size=8):
        assert case.settings.parallel.precision == "float32"
    settings = TrainingSettings.model_validate(
        {"parallel": {"precision": "auto", "strategy": "mirrored", "replicas": 2}}
    )
    case = cases.configured(settings, steps=4, batch_size=8)
    assert case is not None
    assert case.settings.parallel.precision == "float32"


# --- devices that have bfloat16 ---


INTEL = "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile\n"
AMD = "flags\t\t: fpu avx512f avx512_bf16 clzero\nbugs\t\t: amx_bf16\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n"
OLD = "flags\t\t: fpu avx2 not_avx512_bf16 avx512_bf16x\n"


@pytest.mark.parametrize(
    ("text", "native", "words"),
    [
        (INTEL, True, "a processor with amx_bf16 and avx512_bf16"),
        (AMD, True, "a processor with avx512_bf16"),
        (ARM, True, "a processor with bf16"),
        (OLD, False, "a processor without amx_bf16, avx512_bf16, bf16"),
        ("", False, "a processor without amx_bf16, avx512_bf16, bf16"),
    ],
)
def test_processors_tell_it_by_their_flags(text, native, words, tmp_path):
    (tmp_path / "cpuinfo").write_text(text)
    assert measure.native_bfloat16("CPU:1", tmp_path / "cpuinfo") == (native, words)


def test_a_system_without_cpuinfo_has_none(tmp_path):
    missing = tmp_path / "cpuinfo"
    assert measure.native_bfloat16("CPU:0", missing) == (False, f"a processor without {missing}")


@pytest.mark.parametrize(
    ("details", "native"),
    [
        ({"compute_capability": (8, 0)}, True),
        ({"compute_capability": (9, 0)}, True),
        ({"compute_capability": (7, 5)}, False),
        ({}, False),
    ],
)
def test_gpus_tell_it_by_their_compute_capability(details, native, monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    assert measure.native_bfloat16("GPU:1")[0] is native
    assert measure.native_bfloat16("GPU:2")[0] is False
    assert measure.native_bfloat16("TPU:0", pathlib.Path("none")) == (True, "a TPU")


def test_a_hidden_gpu_decides_nothing(monkeypatch):
    capability = {"old": (7, 5), "new": (8, 0)}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["old", "new"])
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["new"])
    monkeypatch.setattr(
        tf.config.experimental,
        "get_device_details",
        lambda gpu: {"compute_capability": capability[gpu]},
    )
    assert measure.native_bfloat16("GPU:0") == (True, "a GPU of compute capability 8.0")
