"""Bad input ends with exit code 1, a sentence that names it, and nothing half-written."""

import io
import os
import subprocess
import tarfile

import pytest
from past_runs import executions
from support import TINY, run

pytestmark = pytest.mark.slow

RECORD = 1 + 3072


def archive(path, record):
    """A binary archive whose batches hold 20 copies of one record."""
    with tarfile.open(path, "w:gz") as tar:
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = 20 * len(record)
            tar.addfile(member, io.BytesIO(20 * record))
    return path


def refused(output, words, *arguments):
    """The states of the nodes of a run that was refused with these words."""
    done = run(output, *arguments, cwd=output.parent, code=1)
    for word in words:
        assert word in done.result["error"]
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    return done.states


def check_refused(output, node, words, *arguments):
    assert refused(output, words, *arguments)[node] == "failed"
    assert executions(output)[-1] == (node, "FAILED")
    assert not [p for p in (output / "pipeline_root" / node).rglob("*") if p.is_file()]


def test_a_truncated_archive(tmp_path):
    whole = archive(tmp_path / "whole.tar.gz", b"\x03" + os.urandom(RECORD - 1))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    words = (str(cut), "truncated")
    check_refused(tmp_path / "out", "Cifar10ExampleGen", words, "--data", cut)


def test_a_model_of_another_shape(tmp_path):
    (tmp_path / "my_models.py").write_text(
        "import keras\n"
        "def seven(input_shape, num_classes):\n"
        "    images = keras.Input(input_shape)\n"
        "    pooled = keras.layers.GlobalAveragePooling2D()(images)\n"
        "    return keras.Model(images, keras.layers.Dense(7)(pooled))\n"
    )
    words = ("my_models:seven", "(3, 7)", "[batch, 10]")
    states = refused(tmp_path / "out", words, "--set", "train.model=my_models:seven")
    assert set(states.values()) == {"waiting"}
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == ["logs"]


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(small_disk):
    settings = (*TINY, "data.sample_train=4000")
    done = run(small_disk / "out", settings=settings, code=1)
    assert done.states["Cifar10ExampleGen"] == "failed"
    assert "full" in done.result["error"] or "no space left" in done.result["error"]
    assert str(small_disk) in done.result["error"]
    node = small_disk / "out" / "pipeline_root" / "Cifar10ExampleGen"
    assert not [path for path in node.rglob("*") if path.is_file()]
