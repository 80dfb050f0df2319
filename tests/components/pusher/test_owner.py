"""A pipeline does not push on top of another pipeline's model."""

import json

import pytest
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import json_utils, proto_utils

from stagecraft.components.pusher import executor, owner
from stagecraft.components.pusher.owner import ForeignVersionError

PRICES = {"name": "houses", "task.name": "regression", "task.args.label": "price"}
RENTS = PRICES | {"task.args.label": "rent"}
TRIPS = {"name": "trips", "task.name": "taxi", "task.args.label": "tips"}


def push(folder, serving, pushed_by, content="a model"):
    """Runs the executor on a model with this content; the version it names, or None."""
    model = standard_artifacts.Model()
    model.uri = str(folder / "model")
    saved = folder / "model" / "Format-Serving" / "saved_model.pb"
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text(content)
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(folder / "pushed")
    destination = pusher_pb2.PushDestination(
        filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(serving))
    )
    config = None if pushed_by is None else {owner.PUSHED_BY: pushed_by}
    executor.Executor().Do(
        {"model": [model]},
        {"pushed_model": [pushed]},
        {
            "push_destination": proto_utils.proto_to_json(destination),
            "custom_config": json_utils.dumps(config),
        },
    )
    return pushed.get_string_custom_property("pushed_version")


@pytest.fixture(params=["a disk", "an object store"])
def serving(request, tmp_path):
    if request.param == "a disk":
        return str(tmp_path / "serving")
    request.getfixturevalue("folder_store")
    return "minio://bucket/serving"


@pytest.mark.parametrize("other", [TRIPS, RENTS], ids=["another pipeline", "another label"])
def test_a_foreign_version_stays_the_newest(tmp_path, serving, other):
    first = push(tmp_path, serving, PRICES)
    for content in ("a model", "another model"):  # also the same one: its owner would be wrong
        with pytest.raises(ForeignVersionError) as caught:
            push(tmp_path, serving, other, content)
        error = caught.value
        assert (error.pushed_by, error.owner) == (PRICES, other)
        assert (error.setting, error.value) == ("push.directory", serving)
        assert error.file == f"{serving}/{first}"
    assert int(push(tmp_path, serving, PRICES, "a better model")) > int(first)


def test_it_is_in_the_version(tmp_path):
    version = push(tmp_path, tmp_path / "serving", PRICES)
    assert json.loads((tmp_path / "serving" / version / "pushed_by.json").read_text()) == PRICES
    # The same model is not pushed again because of the file.
    assert push(tmp_path, tmp_path / "serving", PRICES) == version


def test_versions_of_unknown_owners_pass(tmp_path):
    """Of an earlier Stagecraft, of a copy by hand, or of a pipeline that does not say its name."""
    serving = tmp_path / "serving"
    first = push(tmp_path, serving, None)
    assert not (serving / first / "pushed_by.json").exists()
    second = push(tmp_path, serving, PRICES, "b")
    assert push(tmp_path, serving, None, "c") > second


@pytest.mark.parametrize("text", ["", "{", "[]", '"houses"', "{}"])
def test_a_file_that_says_nothing_is_no_permission(tmp_path, text):
    version = push(tmp_path, tmp_path / "serving", PRICES)
    (tmp_path / "serving" / version / "pushed_by.json").write_text(text)
    with pytest.raises(ForeignVersionError) as caught:
        owner.check(str(tmp_path / "serving"), PRICES)
    assert caught.value.pushed_by == {}


def test_folders_without_versions_pass(tmp_path):
    owner.check(str(tmp_path / "missing"), PRICES)
    (tmp_path / "file").write_text("")
    owner.check(str(tmp_path / "file"), PRICES)
    (tmp_path / "serving" / "notes").mkdir(parents=True)
    (tmp_path / "serving" / ".pushing-1").mkdir()
    owner.check(str(tmp_path / "serving"), PRICES)
