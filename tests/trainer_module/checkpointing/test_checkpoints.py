import contextlib
import errno
import json
import logging
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import checkpoint_files, checkpoints
from stagecraft.trainer_module.checkpointing.checkpoint_files import UnreadableCheckpointError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints, forget
from stagecraft.trainer_module.checkpointing.lease import LeaseHeldError

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
    """Steps 1, 2 and 7; nobody writes there any more."""
    with Checkpoints(tmp_path / "checkpoints") as store:
        for step in (1, 2, 7):
            store.save(step, STATE, PROGRESS, best_step=1)
    return store


def _folders(store: Checkpoints) -> list[str]:
    return sorted(name for name in os.listdir(store.root) if name not in (".lock", ".lease"))


def test_gives_back_what_was_saved_bit_for_bit(saved):
    found = saved.load(7)
    assert found.state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert found.state[name].dtype == value.dtype, name
        assert found.state[name].shape == value.shape, name
        assert found.state[name].tobytes() == value.tobytes(), name
    assert found.progress["seconds"] == 1.5


def test_keeps_the_newest_the_best_and_what_is_needed(tmp_path):
    with Checkpoints(tmp_path) as store:
        for step in (1, 2, 3, 10):
            store.save(step, STATE, PROGRESS, best_step=min(step, 2))
        store.flush()
        assert store.steps() == [2, 3, 10]
    with Checkpoints(tmp_path, keep=1) as store:
        store.save(11, STATE, PROGRESS, best_step=2, needed=[3, 99])
        store.flush()
        assert store.steps() == [2, 3, 11]
        store.save(12, STATE, PROGRESS, best_step=12)
    assert _folders(store) == ["12"]


def test_nothing_is_removed_before_the_newer_is_there(saved, monkeypatch):
    there = []

    def remove(path: pathlib.Path) -> None:
        there.append((path.name, saved.steps()))

    monkeypatch.setattr(checkpoints, "remove_folder", remove)
    with saved:
        saved.save(9, STATE, PROGRESS, best_step=1)
    assert there == [("2", [1, 2, 7, 9])]


def test_one_that_cannot_be_read_takes_no_place_among_the_newest(saved):
    (saved.root / "7" / "state.index").write_bytes(b"")
    with saved:
        found = saved.newest()
        assert found is not None and found.step == 2
        saved.save(3, STATE, PROGRESS, best_step=3)
    assert saved.steps() == [2, 3]


def test_one_that_cannot_be_read_is_replaced(saved):
    (saved.root / "7" / "state.index").write_bytes(b"")
    with saved:
        assert saved.newest() is not None
        saved.save(7, STATE, PROGRESS, best_step=1)
    assert _folders(saved) == ["1", "2", "7"]
    assert saved.load(7).state.keys() == STATE.keys()


def test_all_are_removed_the_newest_last(saved, monkeypatch):
    removed, remove = [], checkpoints.remove_folder

    def note(path: pathlib.Path) -> None:
        removed.append(path.name)
        remove(path)

    monkeypatch.setattr(checkpoints, "remove_folder", note)
    with saved:
        saved.clear()
    assert removed == ["1", "2", "7"]
    assert _folders(saved) == []


class Gate:
    """Holds a save up before it is committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.reached, self.open = threading.Event(), threading.Event()
        atomic_folder = checkpoints.atomic_folder

        @contextlib.contextmanager
        def held_up(path: pathlib.Path) -> Iterator[pathlib.Path]:
            with atomic_folder(path) as folder:
                yield folder
                self.reached.set()
                assert self.open.wait(60)

        monkeypatch.setattr(checkpoints, "atomic_folder", held_up)


def test_a_save_is_written_while_training_goes_on(saved, monkeypatch):
    gate = Gate(monkeypatch)
    with saved:
        saved.save(9, STATE, PROGRESS, best_step=1)
        assert gate.reached.wait(60)
        assert saved.steps() == [1, 2, 7], "it is not committed yet"
        gate.open.set()
        saved.flush()
        assert saved.steps() == [1, 7, 9]


def test_the_end_waits_for_the_save(saved, monkeypatch):
    gate = Gate(monkeypatch)
    with pytest.raises(KeyboardInterrupt), saved:
        saved.save(9, STATE, PROGRESS, best_step=1)
        assert gate.reached.wait(60)
        gate.open.set()
        raise KeyboardInterrupt
    assert _folders(saved) == ["1", "7", "9"]


def test_a_save_that_failed_is_said_at_the_next_one(saved, monkeypatch):
    with saved:
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_files.json, "dumps", _fail)
            saved.save(9, STATE, PROGRESS, best_step=1)
            with pytest.raises(UserError, match="disk"):
                saved.save(10, STATE, PROGRESS, best_step=1)
        assert _folders(saved) == ["1", "2", "7"]
        saved.save(10, STATE, PROGRESS, best_step=1)  # it was said once
    assert saved.steps() == [1, 7, 10]


def test_a_save_that_failed_is_said_at_the_end(saved, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_files, "_checksum", _fail)
    with pytest.raises(UserError), saved:
        saved.save(9, STATE, PROGRESS, best_step=1)
    with pytest.raises(KeyError), saved:
        saved.save(9, STATE, PROGRESS, best_step=1)
        raise KeyError("it does not hide what else went wrong")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with saved:
        pass  # and root is free again


def _fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_saves_only_where_it_is_the_only_one(saved):
    with pytest.raises(RuntimeError, match="is not locked"):
        saved.save(9, STATE, PROGRESS, best_step=1)
    with saved, pytest.raises(UserError, match="train.resume_id"), Checkpoints(saved.root):
        pytest.fail("there are two")


def test_other_workers_only_read(saved):
    with saved, Checkpoints(saved.root, writes=False) as other:
        other.save(9, STATE, PROGRESS, best_step=9)
        other.clear()
        assert other.newest() is not None
    assert saved.steps() == [1, 2, 7]


def test_nothing_there_is_nothing_found(tmp_path):
    assert Checkpoints(tmp_path / "none").newest() is None


@pytest.mark.parametrize("file", ["state.index", "state.data-00000-of-00001", "progress.json"])
@pytest.mark.parametrize("damage", ["truncated", "missing", "empty"])
def test_falls_back_when_the_newest_is_damaged(saved, caplog, file, damage):
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
def test_every_flipped_byte_is_found_or_changes_nothing(saved, file):
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


@pytest.mark.parametrize(
    ("change", "found"),
    [
        *((lambda _, each=each: each, "/7: ") for each in (b"{}", b"[1]", b"garbage", b"\xff\xfe")),
        (lambda content: content.replace(b"1.5", b"1.7"), "checksum"),
        (lambda content: json.dumps(json.loads(content) | {"format": 99}).encode(), "format 99"),
    ],
)
def test_changed_notes_are_found(saved, change, found):
    path = saved.root / "7" / "progress.json"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UnreadableCheckpointError, match=found):
        saved.load(7)


KILLED = """
import os, pathlib, sys
import numpy as np
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints, forget

with Checkpoints(sys.argv[1]) as store:
    store.save(8, {"step": np.asarray(8)}, {}, best_step=8)
    store.flush()
    pathlib.Path.rename = lambda *_: os._exit(9)
    store.save(9, {"step": np.asarray(9)}, {}, best_step=9)
"""


@pytest.mark.slow
def test_a_process_killed_before_the_commit_leaves_the_one_before(tmp_path):
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True)
    assert ended.returncode == 9, ended.stderr.decode()
    assert any(name.startswith(".9.") for name in os.listdir(tmp_path))
    with Checkpoints(tmp_path) as store:
        found = store.newest()
        assert found is not None and found.step == 8
        assert _folders(store) == ["8"]


def test_what_a_crash_left_is_removed(saved):
    (saved.root / ".9.123.partial").mkdir()
    Checkpoints(saved.root).newest()
    assert (saved.root / ".9.123.partial").exists(), "a reader leaves alone what is being written"
    with Checkpoints(saved.root):
        assert _folders(saved) == ["1", "2", "7"]


def test_a_full_disk_is_said_plainly(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted: {mounted.stderr.decode().strip()}")
    try:
        with Checkpoints(tmp_path / "checkpoints") as store:
            store.save(1, STATE, PROGRESS, best_step=1)
            store.save(2, {"step": np.zeros(1_000_000, np.float32)}, PROGRESS, best_step=1)
            with pytest.raises(UserError, match="disk"):
                store.flush()
            assert _folders(store) == ["1"]
            assert store.newest() is not None
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_all_of_an_output_are_forgotten(tmp_path):
    for name in ("one", "two"):
        with Checkpoints(tmp_path / name) as store:
            store.save(4, {"step": np.asarray(4)}, {}, best_step=4)
    forget(tmp_path)
    assert [Checkpoints(tmp_path / name).steps() for name in ("one", "two")] == [[], []]
    forget(tmp_path / "not there")


def test_those_of_a_training_that_goes_on_are_not(tmp_path):
    with Checkpoints(tmp_path / "one") as store:
        store.save(4, {"step": np.asarray(4)}, {}, best_step=4)
        with pytest.raises(LeaseHeldError):
            forget(tmp_path)
        store.flush()
        assert store.steps() == [4]
