import errno
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing.atomic_folder import (
    atomic_folder,
    remove_folder,
    remove_leftovers,
)


def test_appears_with_its_contents(tmp_path):
    with atomic_folder(tmp_path / "a" / "b") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("x")
        assert not (tmp_path / "a" / "b").exists()
    assert (tmp_path / "a" / "b" / "inner" / "file").read_text() == "x"
    assert os.listdir(tmp_path / "a") == ["b"]


def test_replaces_what_was_there(tmp_path):
    for text in ("old", "new"):
        with atomic_folder(tmp_path / "b") as folder:
            (folder / text).write_text(text)
    assert os.listdir(tmp_path / "b") == ["new"]


def test_what_was_there_is_there_until_it_is_replaced(tmp_path, monkeypatch):
    with atomic_folder(tmp_path / "b") as folder:
        (folder / "old").write_text("old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"), atomic_folder(tmp_path / "b") as folder:
        (folder / "new").write_text("new")
    assert os.listdir(tmp_path) == ["b"]
    assert os.listdir(tmp_path / "b") == ["old"]


def test_a_rename_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    with atomic_folder(tmp_path / "b") as folder:
        (folder / "old").write_text("old")
    rename = pathlib.Path.rename

    def fail(self: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        if (self / "new").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"), atomic_folder(tmp_path / "b") as folder:
        (folder / "new").write_text("new")
    assert os.listdir(tmp_path) == ["b"]
    assert os.listdir(tmp_path / "b") == ["old"]


CRASH = """
import os, pathlib, sys
from stagecraft.trainer_module.checkpointing.atomic_folder import atomic_folder

rename, left = pathlib.Path.rename, int(sys.argv[2])

def crash(self, target):
    global left
    if not left:
        os._exit(7)
    left -= 1
    return rename(self, target)

pathlib.Path.rename = crash
with atomic_folder(sys.argv[1]) as folder:
    (folder / "new").write_text("new")
os._exit(0)
"""


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_after_a_crash_the_old_one_or_the_new_one_is_there(tmp_path, renames):
    with atomic_folder(tmp_path / "b") as folder:
        (folder / "old").write_text("old")
    done = subprocess.run([sys.executable, "-c", CRASH, tmp_path / "b", str(renames)])
    assert done.returncode == (0 if renames == 2 else 7)
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["b"]
    assert os.listdir(tmp_path / "b") == (["new"] if renames == 2 else ["old"])


def test_is_removed_at_once(tmp_path, monkeypatch):
    with atomic_folder(tmp_path / "b") as folder:
        (folder / "file").write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a crash before it
        remove_folder(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert os.listdir(tmp_path) != []
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_leaves_nothing_after_a_failure(tmp_path, failure):
    with pytest.raises(failure), atomic_folder(tmp_path / "b") as folder:
        (folder / "file").write_text("half")
        raise failure
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
    ],
)
def test_says_what_is_wrong_with_the_disk(tmp_path, number, words):
    with pytest.raises(UserError, match=words) as caught, atomic_folder(tmp_path / "b"):
        raise OSError(number, os.strerror(number))
    assert str(tmp_path / "b") in str(caught.value)
