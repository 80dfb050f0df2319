import errno
import json
import os
import pathlib
import socket
import time

import pytest
import starts

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import lease as lease_module
from stagecraft.trainer_module.checkpointing.lease import (
    FOLDER,
    Conflict,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    Record,
    VolumeLease,
)


def lease(root: pathlib.Path, name: str = "", seconds: float = 60.0, grace: float = 0.0) -> Lease:
    return VolumeLease(root, name=name, seconds=seconds, grace=grace)


def record_of(one: Lease) -> Record:
    found, _ = one.read()
    assert found is not None
    return found


@pytest.mark.parametrize("more", [{}, {"left": 0.0}], ids=["free", "over"])
@pytest.mark.parametrize("links", [True, False], ids=["links", "no_links"])
def test_two_a_hundred_times(tmp_path, more, links):
    found = starts.at_once("volume", str(tmp_path), count=2, rounds=100, links=links, **more)
    assert [(len(each.winners), len(each.refused)) for each in found] == [(1, 1)] * 100


def test_the_second_is_told_of_the_first(tmp_path):
    first, second = lease(tmp_path, "train-first"), lease(tmp_path, "train-second")
    first.claim()
    with pytest.raises(LeaseHeldError) as refused:
        second.claim()
    assert refused.value.place == str(tmp_path)
    assert refused.value.holder == first.holder
    assert (first.holder.host, first.holder.process) == (socket.gethostname(), os.getpid())
    assert abs(first.holder.since - time.time()) < 60
    assert str(first.holder) == f"train-first (process {os.getpid()} on {socket.gethostname()})"
    assert (refused.value.file, refused.value.suggestion) == (str(tmp_path), "train.resume_id")
    first.release()
    second.claim()


def test_one_that_is_not_renewed_is_over_after_its_grace(tmp_path):
    first, second = lease(tmp_path, seconds=0.0, grace=60.0), lease(tmp_path)
    first.claim()
    with pytest.raises(LeaseHeldError):
        second.claim()
    lease(tmp_path, seconds=0.0).claim(lambda found: True)
    second.claim()


def test_whoever_was_overtaken_writes_nothing_more(tmp_path, caplog):
    first, second = lease(tmp_path, seconds=0.0), lease(tmp_path)
    first.claim()
    first.check()  # nobody has taken it: it is renewed
    second.claim()
    with first.renewed():
        deadline = time.monotonic() + 30
        while "this training run has lost its lease" not in caplog.text:
            assert time.monotonic() < deadline
            os.sched_yield()
    with pytest.raises(LeaseLostError) as lost:
        first.check()
    assert lost.value.holder == second.holder and lost.value.place == str(tmp_path)
    first.release()
    second.renew()


def test_a_process_that_stalled_finds_a_higher_number(tmp_path):
    """The number that it makes is free again: it was removed meanwhile."""
    stalled, other = lease(tmp_path, seconds=0.0), lease(tmp_path)
    stalled.claim()
    found, version = stalled.read()
    assert found is not None
    other.claim()
    for _ in range(5):
        other.renew()
    assert len(list((tmp_path / FOLDER).iterdir())) == 2
    with pytest.raises(Conflict):
        stalled.write(found, version)
    assert record_of(other).holder == other.holder
    other.renew()


def test_a_number_without_content(tmp_path):
    """Where there are no hard links, it is made first, and written then; or never."""
    (tmp_path / FOLDER).mkdir()
    begun = tmp_path / FOLDER / "00000001"
    begun.touch()
    with pytest.raises(LeaseHeldError) as caught:
        lease(tmp_path).claim()
    assert str(caught.value.holder) == "another process"
    os.utime(begun, (time.time() - 61.0,) * 2)
    lease(tmp_path).claim()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"until": 1}', b"\xff", b'{"holder": 3}'])
def test_what_is_no_record(content):
    with pytest.raises(ValueError):  # noqa: PT011
        Record.parsed(content)


def test_what_a_record_of_a_later_version_has_more(tmp_path):
    one = lease(tmp_path, "train-1")
    one.claim()
    fields = json.loads(record_of(one).json())
    fields["holder"]["color"] = fields["color"] = "green"
    assert Record.parsed(json.dumps(fields)) == record_of(one)


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    """The holder stops before others may write, and says why."""
    now = lease_module._clock()
    monkeypatch.setattr(lease_module, "_clock", lambda: now)
    one = lease(tmp_path)
    one.claim()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    now += 59.0
    one.check()
    now += 1.0
    with pytest.raises(LeaseLostError, match="resumes"):
        one.check()
    monkeypatch.undo()
    with pytest.raises(LeaseLostError):  # for good: another one may have written meanwhile
        one.check()


def test_one_that_others_keep_changing(tmp_path, monkeypatch):
    def conflict(*_: object) -> str:
        raise Conflict

    one = lease(tmp_path)
    monkeypatch.setattr(one, "write", conflict)
    with pytest.raises(UserError) as caught:
        one.claim()
    assert caught.value.file == str(tmp_path)


def test_parts_of_processes_that_were_killed(tmp_path):
    one = lease(tmp_path)
    one.claim()
    for name, age in (("old.part", 4000.0), ("new.part", 10.0)):
        (tmp_path / FOLDER / name).touch()
        os.utime(tmp_path / FOLDER / name, (time.time() - age,) * 2)
    one.renew()
    assert [path.name for path in (tmp_path / FOLDER).glob("*.part")] == ["new.part"]
