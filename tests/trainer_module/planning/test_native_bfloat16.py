import pathlib

import pytest
import tensorflow as tf

from stagecraft.trainer_module.planning import measure

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
