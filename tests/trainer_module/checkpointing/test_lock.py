import contextlib
import errno
import fcntl
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
import starts

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import lease as lease_module, lock
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.lease import (
    LeaseHeldError,
    LeaseLostError,
    VolumeLease,
)
from stagecraft.trainer_module.checkpointing.lock import locked

HOLDER = """
import pathlib, sys
from stagecraft.trainer_module.checkpointing.lock import locked

with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def _holding(root: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds ``root``."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder


def test_the_error_of_the_second_names_the_first(tmp_path):
    root = tmp_path / "a" / "root"
    with locked(root):
        with pytest.raises(LeaseHeldError) as refused, locked(root):
            pytest.fail("two hold it")
        holder = refused.value.holder
        assert (holder.process, holder.host) == (os.getpid(), socket.gethostname())
        assert (refused.value.file, refused.value.suggestion) == (str(root), "train.resume_id")
        with locked(tmp_path / "other"):
            pass
    with locked(root):
        pass


def test_a_failure_frees_it(tmp_path):
    with pytest.raises(KeyboardInterrupt), locked(tmp_path):
        raise KeyboardInterrupt
    with locked(tmp_path):
        pass


def test_a_killed_process_holds_nothing(tmp_path):
    with _holding(tmp_path) as holder:
        with pytest.raises(UserError, match=f"process {holder.pid} on "), locked(tmp_path):
            pytest.fail("two hold it")
        holder.kill()
        holder.wait()
        with locked(tmp_path) as lease:
            assert lease.holder.process == os.getpid()


def test_what_was_released_is_not_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_SECONDS", 0.0)  # renewed all the time
    for _ in range(20):
        with locked(tmp_path) as lease:
            pass
        assert lease.read()[0].is_over
        with pytest.MonkeyPatch.context() as there:
            there.setattr(lock, "machine", lambda: "node-2")
            VolumeLease(tmp_path, seconds=0.0, grace=0.0).claim()


def test_fifty_at_once(tmp_path):
    """A killed process leaves its lease; each error names the winner, not the killed process."""
    with _holding(tmp_path / "0") as killed:
        killed.kill()
    [found] = starts.at_once("lock", str(tmp_path), count=50)
    [winner] = found.winners
    assert len(found.refused) == 49
    assert {each["error"] for each in found.refused} == {LeaseHeldError.__name__}
    assert {each["holder"]["process"] for each in found.refused} == {winner} != {killed.pid}


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some network file systems."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_file_system_without_locks(no_flock, tmp_path):
    """The lease holds: that of a process that runs, and not that of one that was killed."""
    with _holding(tmp_path) as holder:
        lease = VolumeLease(tmp_path, seconds=60.0, grace=0.0)
        with pytest.raises(LeaseHeldError, match=f"process {holder.pid} on "):
            lease.claim()
        holder.kill()
        holder.wait()
    with locked(tmp_path):
        pass


@contextlib.contextmanager
def _on_another_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as there:
        there.setattr(lease_module, "machine", lambda: "node-2")
        yield


def test_one_on_another_machine_that_is_alive(tmp_path, monkeypatch):
    """Its kernel's lock is not ours; that it renews its lease says that it lives."""
    with _on_another_machine():
        other = VolumeLease(tmp_path, name="train-2", seconds=60.0, grace=0.0)
        other.claim()
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            other.renew()

        monkeypatch.setattr(lock.time, "sleep", sleep)
        with pytest.raises(LeaseHeldError, match=r"train-2 \(process"), locked(tmp_path):
            pytest.fail("two hold it")
    assert slept == [1.0]


def test_one_on_another_machine_that_is_dead(tmp_path, monkeypatch):
    """A pod that was killed, and the one in its place: it begins when the lease is over."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    with _on_another_machine():
        VolumeLease(tmp_path, seconds=60.0, grace=15.0).claim()
    began = now

    def sleep(seconds: float) -> None:
        nonlocal now
        now += max(seconds, 0.001)

    monkeypatch.setattr(lock.time, "sleep", sleep)
    with locked(tmp_path) as lease:
        assert 75 <= now - began < 77
        lease.check()


@pytest.mark.parametrize("ahead", [3600.0, 1e9])
def test_a_holder_whose_clock_is_wrong_is_waited_for_one_term(ahead, tmp_path, monkeypatch, caplog):
    now = 0.0
    with _on_another_machine():
        VolumeLease(tmp_path, name="train-2", seconds=ahead, grace=0.0).claim()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(lock.time, "sleep", sleep)
    monkeypatch.setattr(lock, "_clock", lambda: now)
    with locked(tmp_path) as lease:
        assert now == pytest.approx(75, abs=1)
        lease.check()
    [told] = [record.progress for record in caplog.records if hasattr(record, "progress")]
    assert (told["phase"], told["seconds"], told["file"]) == ("wait", 75, str(tmp_path))
    assert "train-2" in told["holder"]


def test_a_holder_whose_clock_is_wrong_and_that_renews_is_alive(tmp_path, monkeypatch):
    now = 0.0
    with _on_another_machine():
        other = VolumeLease(tmp_path, name="train-2", seconds=3600.0, grace=0.0)
        other.claim()

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds
            if now > 70:
                other.renew()

        monkeypatch.setattr(lock.time, "sleep", sleep)
        monkeypatch.setattr(lock, "_clock", lambda: now)
        with pytest.raises(LeaseHeldError) as caught, locked(tmp_path):
            pytest.fail("two hold it")
    assert caught.value.holder == other.holder and 70 < now < 75


def test_another_pod_of_the_same_job(tmp_path, monkeypatch):
    """It need not wait: the job's controller has started it in place of the one before."""
    with _on_another_machine():
        before = VolumeLease(tmp_path, name="train-1", seconds=60.0, grace=15.0)
        before.claim()
    monkeypatch.setattr(lock, "_name", "train-1")
    with locked(tmp_path), pytest.raises(LeaseLostError):
        before.renew()


def test_who_has_lost_its_lease_saves_no_more(tmp_path):
    with pytest.raises(LeaseLostError, match="process"), Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"step": np.int64(1)}, {}, best_step=1)
        checkpoints.flush()
        other = VolumeLease(tmp_path, seconds=60.0, grace=0.0)
        other.claim(lambda found: True)
        assert checkpoints._lease is not None
        with pytest.raises(LeaseLostError):
            checkpoints._lease.renew()
        checkpoints.save(2, {"step": np.int64(2)}, {}, best_step=1)
        with pytest.raises(LeaseLostError):
            checkpoints.flush()
        checkpoints.clear()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["1"]
    other.check()


def test_a_root_that_cannot_be_written_is_said_plainly(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    with pytest.raises(UserError, match="no permission"), contextlib.ExitStack() as stack:
        stack.enter_context(locked(tmp_path))
