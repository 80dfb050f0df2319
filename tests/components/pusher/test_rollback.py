"""Retention and rollback: which versions stay, and which one comes back."""

import json
import os
import pathlib

import pytest
from tfx.dsl.io import fileio

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import manifest
from stagecraft.components.object_store import filesystem
from stagecraft.components.pusher import executor, owner, rollback, versions
from stagecraft.components.pusher.rollback import roll_back
from stagecraft.components.pusher.versions import write_version

OWNER = {"name": "mine"}


@pytest.fixture(params=["local", "store"])
def serving(request, tmp_path):
    """A folder of versions, on a disk or in an object store."""
    if request.param == "local":
        return str(tmp_path / "serving")
    request.getfixturevalue("folder_store")
    filesystem.register()
    return "minio://bucket/serving"


@pytest.fixture
def push(tmp_path, serving):
    """``push("a")``: pushes a model that is this text; its version."""

    def push(text, pushed_by=OWNER, **more):
        model = tmp_path / f"model-{text}"
        (model / "variables").mkdir(parents=True, exist_ok=True)
        (model / "saved_model.pb").write_text(text)
        (model / "variables" / "data").write_text(f"weights of {text}")
        return write_version(str(model), serving, pushed_by, **more).number

    return push


def served(serving):
    """The text of the newest version, which is whole."""
    newest = f"{serving}/{versions.numbers(serving)[0]}"
    assert versions.damages_of(newest) == []
    assert filesystem.read(f"{newest}/variables/data") is not None
    return filesystem.read(f"{newest}/saved_model.pb").decode()


def test_the_newest_stay(serving, push):
    pushed = [push(text) for text in "abcde"]
    assert executor.prune(serving, 5, OWNER) == []
    assert executor.prune(serving, 3, OWNER) == pushed[:2]
    assert versions.numbers(serving) == pushed[:1:-1]
    assert sorted(versions.entries(serving)) == [str(each) for each in pushed[2:]], "nothing else"
    # The model that the newest one was compared with stays, too.
    assert executor.prune(serving, 1, OWNER) == pushed[2:3]
    assert executor.prune(serving, 1, OWNER) == []
    assert served(serving) == "e"


def test_versions_of_others_stay(serving, push):
    foreign = [push("a", {"name": "other"}), push("b", None)]
    own = [push(text) for text in "cdef"]
    if "://" not in serving:  # of another program
        os.makedirs(f"{serving}/1/variables")
        pathlib.Path(serving, "1", "saved_model.pb").write_text("x")
        foreign.append(1)
    assert executor.prune(serving, 2, OWNER) == own[:2]
    assert set(versions.numbers(serving)) == {*foreign, *own[2:]}
    assert executor.prune(serving, 1, None) == []


def test_versions_that_a_user_rolled_back_to_stay(serving, push):
    first, bad = push("a"), push("b")
    pinned = roll_back(serving, "b is worse").version
    newer = [push(text) for text in "cdef"]
    assert executor.prune(serving, 1, OWNER) == [first, bad, *newer[:2]]
    assert versions.numbers(serving) == [*newer[:1:-1], pinned]


def test_one_that_cannot_be_removed(tmp_path, monkeypatch, caplog):
    serving = str(tmp_path / "serving")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "saved_model.pb").write_text("m")
    pushed = [write_version(str(tmp_path / "m"), serving, OWNER).number for _ in range(4)]
    rename = os.rename

    def refuse(source, target):
        if source.endswith(str(pushed[0])):
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(executor.os, "rename", refuse)
    assert executor.prune(serving, 2, OWNER) == pushed[1:2]
    assert str(pushed[0]) in caplog.text


def test_roll_back(serving, push):
    good, bad = push("good", more={"assets.extra/warm": b"up"}), push("bad")
    done = roll_back(serving, "slow on phones")
    assert (done.restored, done.replaced) == (good, bad)
    assert done.version == versions.numbers(serving)[0] > bad
    assert served(serving) == "good"
    newest = f"{serving}/{done.version}"
    assert json.loads(filesystem.read(f"{newest}/{owner.FILE}")) == OWNER
    assert filesystem.read(f"{newest}/assets.extra/warm") == b"up"
    record = rollback.of(serving, done.version)
    assert (record["restored"], record["replaced"]) == (good, bad)
    assert (record["user"], record["reason"]) == (done.user, "slow on phones")
    listed = json.loads(filesystem.read(f"{newest}/{manifest.FILE}"))
    assert {rollback.FILE, "assets.extra/warm", "variables/data"} <= set(listed)
    # The next run goes on from there.
    push("better")
    assert roll_back(serving, "no").restored == done.version
    assert served(serving) == "good"


def test_what_an_interrupted_push_left_is_no_version(serving, push):
    good, bad = push("good"), push("bad")
    partial = f"{serving}/{bad + 1}/variables"
    fileio.makedirs(partial)
    with fileio.open(f"{partial}/data", "w") as file:
        file.write("weights")
    with pytest.raises(UserError) as caught:
        roll_back(serving, "because", bad + 1)
    assert caught.value.suggestion == f"{bad}, {good}"
    done = roll_back(serving, "because")
    assert (done.restored, done.replaced) == (good, bad)
    assert done.version > bad + 1 and served(serving) == "good"


def test_nobody_gets_a_bad_model_back_by_default(serving, push):
    first, second, third = (push(text) for text in "abc")
    assert roll_back(serving, "c is bad").restored == second
    assert roll_back(serving, "b is bad, too").restored == first
    with pytest.raises(UserError) as caught:
        roll_back(serving, "a as well")
    assert (caught.value.setting, caught.value.file) == ("--to", serving)
    assert roll_back(serving, "c was right", third).restored == third
    assert served(serving) == "c"


def test_versions_of_another_pipeline_do_not_come_back(serving, push):
    foreign, own = push("a", {"name": "other"}), push("b")
    with pytest.raises(UserError) as caught:
        roll_back(serving, "because")
    assert caught.value.suggestion == f"--to {foreign}"
    assert versions.numbers(serving) == [own, foreign]
    done = roll_back(serving, "the pipeline moved", foreign)
    assert json.loads(filesystem.read(f"{serving}/{done.version}/{owner.FILE}")) == {
        "name": "other"
    }


@pytest.mark.parametrize("pushed", [(), ("only one",)])
def test_nothing_to_roll_back_to(serving, push, pushed):
    numbers = [push(text) for text in pushed]
    with pytest.raises(UserError) as caught:
        roll_back(serving, "because")
    assert (caught.value.setting, caught.value.file) == ("", serving)
    assert versions.numbers(serving) == numbers


def test_versions_that_cannot_be_rolled_back_to(serving, push):
    first, second = push("a"), push("b")
    with pytest.raises(UserError) as unknown:
        roll_back(serving, "because", 7)
    assert (unknown.value.setting, unknown.value.value) == ("--to", 7)
    assert unknown.value.suggestion == f"{second}, {first}", "those that exist"
    with pytest.raises(UserError) as newest:
        roll_back(serving, "because", second)
    assert (newest.value.setting, newest.value.value) == ("--to", second)
    with fileio.open(f"{serving}/{first}/variables/data", "wb") as file:
        file.write(b"damaged")
    with pytest.raises(UserError) as damaged:
        roll_back(serving, "because", first)
    assert damaged.value.record == "variables/data"
    with pytest.raises(UserError) as none:
        roll_back(serving, "because")
    assert none.value.file == serving
    assert versions.numbers(serving) == [second, first]
