"""The component, as a launcher runs it: TFX's spec, with another version directory."""

import pathlib
from typing import Any

import pytest
from tfx import types
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from stagecraft.components import Pusher
from stagecraft.components.pusher import executor
from stagecraft.schemas.errors import UserError

CHANNEL = types.Channel(type=standard_artifacts.Model)


def run(folder: pathlib.Path, *, blessed: int = 1, destination: str = "") -> Any:
    """Runs the executor on ``folder/model``; the artifact it gives."""
    model = standard_artifacts.Model()
    model.uri = str(folder / "model")
    saved = folder / "model" / "Format-Serving" / "saved_model.pb"
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text("a model")
    blessing = standard_artifacts.ModelBlessing()
    blessing.set_int_custom_property("blessed", blessed)
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(folder / "pushed")
    given = pusher_pb2.PushDestination(
        filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / "serving"))
    )
    executor.Executor().Do(
        {"model": [model], "model_blessing": [blessing]},
        {"pushed_model": [pushed]},
        {"push_destination": destination or proto_utils.proto_to_json(given)},
    )
    return pushed


def test_a_blessed_model(tmp_path):
    pushed = run(tmp_path)
    assert pushed.get_int_custom_property("pushed") == 1
    (version,) = (tmp_path / "serving").iterdir()
    assert pushed.get_string_custom_property("pushed_destination") == str(version)
    assert pushed.get_string_custom_property("pushed_version") == version.name
    for folder in (version, tmp_path / "pushed"):
        assert (folder / "saved_model.pb").read_text() == "a model"


def test_one_that_is_not(tmp_path):
    assert run(tmp_path, blessed=0).get_int_custom_property("pushed") == 0
    assert not (tmp_path / "serving").exists()


def test_nothing_is_served_when_the_copy_for_the_artifact_fails(tmp_path, monkeypatch):
    copy = fileio.copy

    def full(source: str, target: str, overwrite: bool = False) -> None:
        if target.startswith(str(tmp_path / "pushed")):
            raise OSError(28, "No space left on device")
        copy(source, target, overwrite=overwrite)

    monkeypatch.setattr(fileio, "copy", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path)
    assert not (tmp_path / "serving").exists()


def test_a_destination_that_is_none(tmp_path):
    with pytest.raises(UserError, match="filesystem.base_directory") as caught:
        run(tmp_path, destination="{}")
    assert (caught.value.setting, caught.value.value) == ("push_destination", "{}")


def test_the_component_is_tfxs_with_another_executor():
    given = pusher_pb2.PushDestination(
        filesystem=pusher_pb2.PushDestination.Filesystem(base_directory="/serving")
    )
    pusher = Pusher(model=CHANNEL, push_destination=given)
    assert pusher.executor_spec.executor_class is executor.Executor
    assert pusher.id == "Pusher" and set(pusher.outputs) == {"pushed_model"}


def test_a_model_that_is_there_is_not_pushed_again(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    (version,) = (tmp_path / "serving").iterdir()
    for pushed, already in ((first, 0), (second, 1)):
        assert pushed.get_int_custom_property("pushed") == 1
        assert pushed.get_string_custom_property("pushed_version") == version.name
        assert pushed.get_int_custom_property("already_pushed") == already
    (version / "saved_model.pb").write_text("another model")
    assert run(tmp_path).get_int_custom_property("already_pushed") == 0
    assert len(list((tmp_path / "serving").iterdir())) == 2
