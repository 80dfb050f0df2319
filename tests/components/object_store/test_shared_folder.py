"""A folder that a step and its pods share is the same to them on a volume and in a store."""

import pathlib
from typing import Any

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.object_store.folder import open_folder


@pytest.fixture(params=["volume", "store"])
def root(request: Any, tmp_path: pathlib.Path) -> str:
    """Path, or address, of a folder that is not there yet."""
    if request.param == "volume":
        return str(tmp_path / "jobs")
    return f"s3://{request.getfixturevalue('bucket')}/jobs"


def test_small_files(root):
    folder = open_folder(f"{root}/one")
    assert folder.read("task.json") is None
    folder.remove("task.json")
    folder.write("task.json", b"first")
    folder.write("task.json", b"second")
    assert folder.read("task.json") == b"second"
    folder.remove("task.json")
    assert folder.read("task.json") is None


def test_what_is_in_several(root):
    for name in ("one", "two", "two/deeper"):
        open_folder(f"{root}/{name}").write("lease.json", b"{}")
    open_folder(f"{root}/three").write("task.json", b"{}")
    assert sorted(open_folder(root).folders_with("lease.json")) == ["one", "two"]
    open_folder(f"{root}/two").clear(last="lease.json")
    assert open_folder(root).folders_with("lease.json") == ["one"]
    assert open_folder(f"{root}/two/deeper").read("lease.json") is None
    open_folder(f"{root}/none").clear()


def test_a_volume_that_cannot_be_written(tmp_path):
    (tmp_path / "jobs").write_text("")
    with pytest.raises(UserError) as caught:
        open_folder(str(tmp_path / "jobs" / "one")).write("task.json", b"")
    assert caught.value.setting == "kubeflow.job.folder"
