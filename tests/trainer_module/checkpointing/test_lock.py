"""A folder of checkpoints has one training at a time, and a dead one is none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing.lock import locked

HOLDER = """
import pathlib, sys
from stagecraft.trainer_module.checkpointing.lock import locked

with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_refused_and_told_of_the_first(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "a" / "root"
    with locked(root):
        with pytest.raises(UserError) as refused, locked(root):
            pytest.fail("two hold it")
        for words in (
            f"{root}: process {os.getpid()} on {socket.gethostname()} is training",
            "stop it",
            "train.resume_id",
        ):
            assert words in str(refused.value)
        with locked(tmp_path / "other"):
            pass
    with locked(root):
        pass


def test_a_failure_frees_it(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt), locked(tmp_path):
        raise KeyboardInterrupt
    with locked(tmp_path):
        pass


def test_a_killed_process_holds_nothing(tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=f"process {holder.pid} on "), locked(tmp_path):
            pytest.fail("two hold it")
        holder.kill()
        holder.wait()
        with locked(tmp_path):
            assert f"process {os.getpid()} on " in (tmp_path / ".lock").read_text()


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING), locked(tmp_path):
        assert f"{tmp_path}: cannot be locked (No locks available)" in caplog.text


def test_a_root_that_cannot_be_written_is_said_plainly(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    with pytest.raises(UserError, match="no permission"), contextlib.ExitStack() as stack:
        stack.enter_context(locked(tmp_path))
