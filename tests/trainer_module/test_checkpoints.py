"""Checkpoints are committed whole, verified on reading, and hold every dtype exactly."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import checkpoints
from stagecraft.trainer_module.checkpoints import Checkpoints, UnreadableCheckpointError

STATE = {
    "step": np.asarray(7, np.int64),
    "model/conv2d/kernel": np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 9),
    "model/seed_generator/state": np.asarray([2**32 - 1, 5], np.uint32),
    "optimizer/half": np.asarray([0.1, 3e38], ml_dtypes.bfloat16),
    "optimizer/empty": np.zeros([0, 3], np.float64),
}
PROGRESS = {"evaluations": [], "seconds": 1.5, "examples": 3}


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> Checkpoints:
    """Steps 1, 2 and 7."""
    store = Checkpoints(tmp_path / "root")
    for step in (1, 2, 7):
        store.save(step, STATE, PROGRESS, best_step=1)
    return store


def test_gives_back_what_was_saved_bit_for_bit(saved: Checkpoints) -> None:
    found = saved.load(7)
    assert found.state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert found.state[name].dtype == value.dtype, name
        assert found.state[name].shape == value.shape, name
        assert found.state[name].tobytes() == value.tobytes(), name
    assert found.progress["seconds"] == 1.5


def test_keeps_the_newest_two_and_the_best(tmp_path: pathlib.Path) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2, 3, 10):
        store.save(step, STATE, PROGRESS, best_step=min(step, 2))
    assert store.steps() == [2, 3, 10]


def test_nothing_there_is_nothing_found(tmp_path: pathlib.Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() is None


@pytest.mark.parametrize("file", ["state.index", "state.data-00000-of-00001", "progress.json"])
@pytest.mark.parametrize("damage", ["truncated", "missing", "empty"])
def test_falls_back_when_the_newest_is_damaged(
    saved: Checkpoints, caplog: pytest.LogCaptureFixture, file: str, damage: str
) -> None:
    path = saved.root / "7" / file
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-3] if damage == "truncated" else b"")
    with caplog.at_level(logging.WARNING):
        found = saved.newest()
    assert found is not None and found.step == 2
    assert str(saved.root / "7") in caplog.text


@pytest.mark.parametrize("file", ["state.index", "state.data-00000-of-00001"])
def test_every_flipped_byte_is_found_or_changes_nothing(saved: Checkpoints, file: str) -> None:
    path = saved.root / "7" / file
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :]
        )
        try:
            found = saved.load(7)
        except UnreadableCheckpointError:
            continue
        assert {name: value.tobytes() for name, value in found.state.items()} == {
            name: value.tobytes() for name, value in STATE.items()
        }, f"byte {position} of {file}"


def test_another_format_is_not_read(saved: Checkpoints) -> None:
    path = saved.root / "7" / "progress.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(UnreadableCheckpointError, match="format 99"):
        saved.load(7)


def test_an_interrupted_save_leaves_the_others(
    saved: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.json, "dumps", interrupt)
    with pytest.raises(KeyboardInterrupt):
        saved.save(9, STATE, PROGRESS, best_step=1)
    assert sorted(os.listdir(saved.root)) == ["1", "2", "7"]


def test_what_a_crash_left_is_removed(saved: Checkpoints) -> None:
    (saved.root / ".9.123.partial").mkdir()
    assert Checkpoints(saved.root).steps() == [1, 2, 7]
    assert sorted(os.listdir(saved.root)) == ["1", "2", "7"]


def test_a_full_disk_is_said_plainly(tmp_path: pathlib.Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted: {mounted.stderr.decode().strip()}")
    try:
        store = Checkpoints(tmp_path / "root")
        store.save(1, STATE, PROGRESS, best_step=1)
        with pytest.raises(UserError, match="the disk is full"):
            store.save(2, {"step": np.zeros(1_000_000, np.float32)}, PROGRESS, best_step=1)
        assert os.listdir(store.root) == ["1"]
        assert store.newest() is not None
    finally:
        subprocess.run(["umount", tmp_path], check=True)
