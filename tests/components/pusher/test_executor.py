"""The component, as a launcher runs it: TFX's spec, with another version directory."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from damages import WAYS
from tfx import types
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import json_utils, proto_utils

from stagecraft.common.errors import UserError
from stagecraft.components import Pusher
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import DamagedArtifactError
from stagecraft.components.pusher import already, executor
from stagecraft.components.pusher.versions import DamagedCopyError

FILES = {"saved_model.pb": "a model", "variables/variables.data": "its weights"}
CHANNEL = types.Channel(type=standard_artifacts.Model)


def run(
    folder: pathlib.Path,
    *,
    blessed: int = 1,
    destination: str = "",
    config: dict[str, Any] | None = None,
    examples: types.Artifact | None = None,
    spoil: Callable[[pathlib.Path], None] = lambda folder: None,
) -> Any:
    """Runs the executor on ``folder/model``, after ``spoil``; the artifact it gives."""
    model = standard_artifacts.Model()
    model.uri = str(folder / "model")
    for name, content in FILES.items():
        path = folder / "model" / "Format-Serving" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    manifest.add(model.mlmd_artifact, model.type_name)
    spoil(folder / "model" / "Format-Serving")
    blessing = standard_artifacts.ModelBlessing()
    blessing.set_int_custom_property("blessed", blessed)
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(folder / "pushed")
    given = pusher_pb2.PushDestination(
        filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / "serving"))
    )
    executor.Executor().Do(
        {
            "model": [model],
            "model_blessing": [blessing],
            **({"examples": [examples]} if examples else {}),
        },
        {"pushed_model": [pushed]},
        {
            "push_destination": destination or proto_utils.proto_to_json(given),
            "custom_config": json_utils.dumps(config),
        },
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
    for pushed, expected in ((first, 0), (second, 1)):
        assert pushed.get_int_custom_property("pushed") == 1
        assert pushed.get_string_custom_property("pushed_version") == version.name
        assert pushed.get_int_custom_property("already_pushed") == expected
    (version / "saved_model.pb").write_text("another model")
    assert run(tmp_path).get_int_custom_property("already_pushed") == 0
    assert len(list((tmp_path / "serving").iterdir())) == 2


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_model_is_not_pushed(tmp_path, way, name):
    """What was blessed is what is pushed, byte for byte."""
    with pytest.raises(DamagedArtifactError) as caught:
        run(tmp_path, spoil=lambda model: WAYS[way](model / name))
    assert caught.value.file == str(tmp_path / "model" / "Format-Serving" / name)
    assert not (tmp_path / "serving").exists()
    assert not (tmp_path / "pushed").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["pushed", "serving", "minio://bucket/serving"])
def test_a_copy_is_read_back(tmp_path, monkeypatch, folder_store, way, name, place):
    """A disk, a network or a full quota may lose what was written, and tell nobody."""
    copy = fileio.copy
    stored = place.startswith("minio")
    folder = folder_store / "minio" / "bucket" / "serving" if stored else tmp_path / place

    def damaging(source: str, target: str, overwrite: bool = False) -> None:
        copy(source, target, overwrite=overwrite)
        path = folder_store / target.replace("://", "/") if "://" in target else target
        if folder in pathlib.Path(path).parents and target.endswith(name):
            WAYS[way](pathlib.Path(path))

    monkeypatch.setattr(fileio, "copy", damaging)
    given = pusher_pb2.PushDestination.Filesystem(base_directory=place)
    destination = proto_utils.proto_to_json(pusher_pb2.PushDestination(filesystem=given))
    with pytest.raises(DamagedCopyError) as caught:
        run(tmp_path, destination=destination if stored else "")
    assert caught.value.record == name
    assert [damage.name for damage in caught.value.damages] == [name]
    serving = folder if stored else tmp_path / "serving"
    assert [path for path in serving.rglob("*") if path.is_file()] == []


def test_a_served_version_is_not_lost(tmp_path):
    pushed = run(tmp_path)
    assert already.lost(pushed) == ""
    version = pathlib.Path(pushed.get_string_custom_property("pushed_destination"))
    (version / "model_card.md").write_text("of the TrainingReport")
    assert already.lost(pushed) == ""
    assert already.lost(run(tmp_path, blessed=0)) == ""


@pytest.mark.parametrize("name", [*FILES, manifest.FILE])
@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_version_is_lost_and_pushed_again(tmp_path, way, name):
    pushed = run(tmp_path)
    version = pathlib.Path(pushed.get_string_custom_property("pushed_destination"))
    WAYS[way](version / name)
    if (way, name) == ("removed", manifest.FILE):  # the model is whole
        assert already.lost(pushed) == ""
        return
    assert str(version) in already.lost(pushed)
    again = run(tmp_path)
    assert again.get_int_custom_property("already_pushed") == 0
    assert already.lost(again) == ""


def test_a_version_that_is_gone_is_lost(tmp_path):
    pushed = run(tmp_path)
    version = pathlib.Path(pushed.get_string_custom_property("pushed_destination"))
    version.rename(tmp_path / "elsewhere")
    assert already.lost(pushed) == f"{version} is gone"


def test_old_versions_are_removed_and_not_pushed_again(tmp_path, monkeypatch):
    config = {"pushed_by": {"name": "mine"}, "keep": 2}
    pushed = []
    for text in "abcd":
        monkeypatch.setitem(FILES, "saved_model.pb", text)
        pushed.append(run(tmp_path, config=config))
    removed = [
        json.loads(each.get_string_custom_property("removed_versions") or "[]") for each in pushed
    ]
    numbers = [int(each.get_string_custom_property("pushed_version")) for each in pushed]
    assert removed == [[], [], numbers[:1], numbers[1:2]]
    left = {int(path.name) for path in (tmp_path / "serving").iterdir()}
    assert left == set(numbers[2:])
    # A run of an old model that is in the cache must not put it on top of newer ones.
    for each, number in zip(pushed[:2], numbers, strict=False):
        assert already.lost(each) == ""
        assert str(number) in already.removed(each) and str(numbers[3]) in already.removed(each)
    for each in pushed[2:]:
        assert (already.lost(each), already.removed(each)) == ("", "")


def test_only_the_pushed_version_has_warm_up_requests(tmp_path, monkeypatch):
    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = str(tmp_path), '["eval"]'
    asked = []
    monkeypatch.setattr(executor.warmup, "records", lambda *given: asked.append(given) or [b"e"])
    monkeypatch.setattr(executor.warmup, "requests", lambda model, records: b"".join(records))
    config = {"warmup": {"examples": 3, "split": "eval"}}
    pushed = run(tmp_path, config=config, examples=examples)
    version = pathlib.Path(pushed.get_string_custom_property("pushed_destination"))
    assert (version / executor.warmup.FILE).read_bytes() == b"e"
    assert asked == [(examples, "eval", 3)]
    assert executor.warmup.FILE in json.loads((version / manifest.FILE).read_text())
    for folder in ("pushed", "model/Format-Serving"):
        assert not (tmp_path / folder / executor.warmup.FILE).exists()
    # The version still is the model.
    again = run(tmp_path, config=config, examples=examples)
    assert again.get_int_custom_property("already_pushed") == 1
    assert already.lost(again) == ""


def test_arguments_of_the_component():
    examples = types.Channel(type=standard_artifacts.Examples)
    given = {"model": CHANNEL, "push_destination": pusher_pb2.PushDestination()}
    plain = Pusher(**given, custom_config={"a": 1}, examples=examples)
    assert set(plain.inputs) == {"model"}
    assert json.loads(plain.exec_properties["custom_config"]) == {"a": 1}
    warm = Pusher(**given, keep=3, warmup=5, examples=examples, split="test")
    assert set(warm.inputs) == {"model", "examples"}
    assert json.loads(warm.exec_properties["custom_config"]) == {
        "keep": 3,
        "warmup": {"examples": 5, "split": "test"},
    }
    for missing, wrong in (("model", {}), ("examples", {"model": CHANNEL, "warmup": 1})):
        with pytest.raises(UserError) as caught:
            Pusher(**wrong, push_destination=pusher_pb2.PushDestination())
        assert caught.value.setting == missing


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("way", WAYS)
def test_a_version_of_an_earlier_release_is_compared_with_the_artifact(tmp_path, way, name):
    pushed = run(tmp_path)
    version = pathlib.Path(pushed.get_string_custom_property("pushed_destination"))
    (version / manifest.FILE).unlink()
    assert already.lost(pushed) == ""
    WAYS[way](version / name)
    assert already.lost(pushed) == f"{version} is damaged"
