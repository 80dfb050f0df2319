"""A version is there whole or not at all, and above all others."""

import concurrent.futures
import os
import pathlib
import shutil
import time

import pytest
from tfx.dsl.io import fileio

from stagecraft.common.errors import UserError
from stagecraft.components.pusher import versions
from stagecraft.components.pusher.versions import HIGHEST, next_version, write_version

FILES = ("saved_model.pb", "fingerprint.pb", "variables/variables.index", "assets/a.txt")
PUSHED = {*FILES, ".manifest.json"}


@pytest.fixture
def model(tmp_path: pathlib.Path) -> str:
    """A folder with the files of a SavedModel."""
    for name in FILES:
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return str(tmp_path / "model")


def files(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("there", "now", "expected"),
    [
        ([], 1_700_000_000.9, 1_700_000_000),
        (["1600000000"], 1_700_000_000, 1_700_000_000),
        (["1700000000"], 1_700_000_000, 1_700_000_001),  # twice in a second
        (["1800000000", "3"], 1_700_000_000, 1_800_000_001),  # a clock that was set back
        (["1800000000000"], 1_700_000_000, 1_800_000_000_001),  # a service that counts in ms
        (["latest", "1800000000.tmp", "-5", "١٢", ".pushing-9"], 7, 7),  # no versions
        (["9" * 20], 7, 7),  # no int64
        ([str(HIGHEST - 1)], 7, HIGHEST),
    ],
)
def test_the_number(there, now, expected):
    assert next_version("serving", there, now) == expected


def test_there_is_a_last_number():
    with pytest.raises(UserError, match=str(HIGHEST)) as caught:
        next_version("serving", [str(HIGHEST)], 7)
    assert (caught.value.setting, caught.value.file) == ("push.directory", "serving")


def test_a_clock_set_back(model, tmp_path, monkeypatch):
    serving = tmp_path / "serving"
    first = write_version(model, str(serving))
    assert abs(first.number - time.time()) < 60  # as TensorFlow Serving's users expect
    monkeypatch.setattr(versions.time, "time", lambda: 1_000_000_000.0)
    second = write_version(model, str(serving))
    assert second.number == first.number + 1
    assert second.path == str(serving / str(second.number))
    assert files(pathlib.Path(second.path)) == PUSHED
    assert len(os.listdir(serving)) == 2


def _fails_after(monkeypatch: pytest.MonkeyPatch, count: int, error: BaseException) -> None:
    """Lets so many files be copied."""
    copy, done = fileio.copy, []

    def copy_some(source: str, target: str, overwrite: bool = False) -> None:
        if len(done) == count:
            raise error
        done.append(target)
        copy(source, target, overwrite=overwrite)

    monkeypatch.setattr(fileio, "copy", copy_some)


@pytest.mark.parametrize("count", range(len(FILES)))
def test_a_push_that_fails_leaves_nothing(model, tmp_path, monkeypatch, count):
    before = write_version(model, str(tmp_path / "serving"))
    _fails_after(monkeypatch, count, OSError(28, "No space left on device"))
    with pytest.raises(UserError, match=f"{tmp_path}/serving: .*No space left.*push.directory"):
        write_version(model, str(tmp_path / "serving"))
    assert os.listdir(tmp_path / "serving") == [str(before.number)]


def test_one_that_is_interrupted_leaves_nothing(model, tmp_path, monkeypatch):
    _fails_after(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_version(model, str(tmp_path / "serving"))
    assert os.listdir(tmp_path / "serving") == []


def test_no_version_is_seen_before_it_is_whole(model, tmp_path, monkeypatch):
    copy, seen = fileio.copy, []

    def watched(source: str, target: str, overwrite: bool = False) -> None:
        copy(source, target, overwrite=overwrite)
        seen.append([name for name in os.listdir(tmp_path / "serving") if name.isdigit()])

    monkeypatch.setattr(fileio, "copy", watched)
    write_version(model, str(tmp_path / "serving"))
    assert seen == [[]] * len(FILES)


def test_what_a_killed_push_left_is_removed_when_nobody_writes_it(model, tmp_path):
    abandoned, busy = (tmp_path / "serving" / f".pushing-{name}" for name in ("old", "new"))
    for folder in (abandoned, busy):
        folder.mkdir(parents=True)
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(abandoned, (two_days_ago, two_days_ago))
    write_version(model, str(tmp_path / "serving"))
    assert busy.exists() and not abandoned.exists()


def test_pushes_at_the_same_time(model, tmp_path):
    serving = tmp_path / "serving"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: write_version(model, str(serving)), range(24)))
    assert len({version.number for version in found}) == 24
    assert {version.path for version in found} == {str(path) for path in serving.iterdir()}
    assert all(files(pathlib.Path(version.path)) == PUSHED for version in found)


@pytest.mark.parametrize("lost", ["all", "saved_model.pb"])
def test_a_model_that_is_none(model, tmp_path, lost):
    """The Trainer's folder was cleaned up, or something wrote another format."""
    os.rename(model if lost == "all" else f"{model}/{lost}", tmp_path / "elsewhere")
    with pytest.raises(UserError, match="saved_model.pb") as caught:
        write_version(model, str(tmp_path / "serving"))
    assert caught.value.file == model
    assert not (tmp_path / "serving").exists()


def test_a_folder_that_is_a_file(model, tmp_path):
    (tmp_path / "serving").write_text("")
    with pytest.raises(UserError, match=f"{tmp_path}/serving: .*push.directory"):
        write_version(model, str(tmp_path / "serving"))


@pytest.mark.parametrize("store", ["bucket", "folder_store"])
def test_an_object_store(model, store, monkeypatch, request):
    """It cannot rename, so the file that readers look for is the last; or none is left."""
    made = str(request.getfixturevalue(store))
    bucket = made if store == "bucket" else "bucket"
    serving = f"minio://{bucket}/serving"
    first, second = (write_version(model, serving) for _ in range(2))
    assert second.number > first.number and second.path == f"{serving}/{second.number}"
    copied = {
        os.path.relpath(os.path.join(parent, name), second.path)
        for parent, _, names in fileio.walk(second.path)
        for name in names
    }
    assert copied == PUSHED

    copy, order = fileio.copy, []

    def noted(source: str, target: str, overwrite: bool = False) -> None:
        order.append(os.path.basename(target))
        copy(source, target, overwrite=overwrite)

    monkeypatch.setattr(fileio, "copy", noted)
    write_version(model, serving)
    assert order[-1] == "saved_model.pb" and len(order) == len(FILES)

    before = sorted(fileio.listdir(serving))
    _fails_after(monkeypatch, 3, OSError(5, "Input/output error"))
    with pytest.raises(UserError, match=f"{serving}: .*Input/output error"):
        write_version(model, serving)
    assert sorted(fileio.listdir(serving)) == before


def test_from_an_object_store_to_a_folder(model, folder_store, tmp_path):
    """As on Kubeflow with ``push.directory`` on a volume."""
    shutil.copytree(model, folder_store / "minio" / "bucket" / "model")
    version = write_version("minio://bucket/model", str(tmp_path / "serving"))
    assert files(pathlib.Path(version.path)) == PUSHED
    assert os.listdir(tmp_path / "serving") == [str(version.number)]
