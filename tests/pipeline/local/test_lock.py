import os
import subprocess
import sys

import pytest
import starts

from stagecraft.common.errors import UserError
from stagecraft.pipeline.local import lock


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path, another_run):
    with another_run() as other:
        refused = pytest.raises(UserError, match=rf"another run \(process {other.pid}\)")
        with refused, lock.held(tmp_path):
            pass
        other.kill()
    with lock.held(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_fifty_at_once_after_one_that_was_killed(tmp_path):
    """The number of that one is in the file until the next one has written its own."""
    (tmp_path / "0").mkdir()
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (tmp_path / "0" / ".lock").write_text(str(killed.pid))
    [found] = starts.at_once("output", str(tmp_path), count=50)
    [winner] = found.winners
    assert len(found.refused) == 49
    assert all(f"another run (process {winner})" in each["text"] for each in found.refused)


def test_who_asks_whether_it_is_held_is_in_nobodys_way(tmp_path):
    assert lock.held_since(tmp_path) is None
    assert not (tmp_path / ".lock").exists()
    with lock.held(tmp_path):
        assert lock.held_since(tmp_path) == (tmp_path / ".lock").stat().st_mtime
    assert (tmp_path / ".lock").exists()
    assert lock.held_since(tmp_path) is None


def test_holding_twice_in_one_process_is_fine(tmp_path, another_run):
    with lock.held(tmp_path):
        with lock.held(tmp_path):
            pass
        with pytest.raises(AssertionError), another_run():
            pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    refused = pytest.raises(UserError, match=r"file/out/\.lock")
    with refused, lock.held(tmp_path / "file" / "out"):
        pass
