"""``stagecraft push --rollback``, and what ``stagecraft history`` says of it."""

import getpass
import pathlib

import pytest
from ml_metadata import errors
from ml_metadata.proto import metadata_store_pb2 as pb
from past_runs import Output

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import file, rollbacks
from stagecraft.components.pusher import versions
from stagecraft.components.pusher.versions import write_version
from stagecraft.pipeline.history import runs

REASON = "worse on phones"


class Pushed:
    """An output folder whose runs pushed models."""

    def __init__(self, folder: pathlib.Path, texts: str = "ab"):
        self.serving = folder / "serving"
        self.output = Output(folder)
        self.numbers = []
        for text in texts:
            model = folder / "models" / text
            model.mkdir(parents=True)
            (model / "saved_model.pb").write_text(text)
            version = write_version(str(model), str(self.serving), {"name": "quickstart"})
            self.numbers.append(version.number)
            properties = {"pushed_destination": version.path, "pushed_version": str(version.number)}
            artifact = self.output.artifact("PushedModel", model, pushed=1, **properties)
            run = self.output.begin(f"2026-01-0{len(self.numbers)}T03:04:05.6")
            self.output.step(run, "Pusher", outputs=[artifact])

    @property
    def newest(self) -> pathlib.Path:
        return self.serving / str(versions.numbers(str(self.serving))[0])


@pytest.fixture
def pushed(tmp_path):
    return Pushed(tmp_path / "runs" / "quickstart")


def test_the_last_good_version_is_served_again(stagecraft, pushed):
    first, second = pushed.numbers
    done = stagecraft("push", "--rollback", "--reason", REASON, "--json")
    assert done.code == 0, done.stderr
    said = done.last_line
    assert (said["restored"], said["replaced"], said["reason"]) == (first, second, REASON)
    assert said["user"] == getpass.getuser()
    assert pushed.newest.name == str(said["version"])
    assert (pushed.newest / "saved_model.pb").read_text() == "a"
    (shown,) = stagecraft("history", "--json").last_line["rollbacks"]
    assert shown["output"] == "runs/quickstart"
    same = ("version", "restored", "replaced", "user", "reason", "time")
    assert {name: shown[name] for name in same} == {name: said[name] for name in same}
    table = stagecraft("history").stdout.splitlines()
    assert len(table) == 1 + 2 + 1 + 2
    assert table[-1].split()[-5:] == [str(second), getpass.getuser(), *REASON.split()]
    # Once more: there is no other good version.
    again = stagecraft("push", "--rollback", "--reason", "once more", "--json")
    assert again.code == 1 and len(versions.numbers(str(pushed.serving))) == 3
    named = ("push", "--rollback", "--to", str(second), "--reason", "it was right")
    assert stagecraft(*named).code == 0
    assert (pushed.newest / "saved_model.pb").read_text() == "b"
    reasons = [each["reason"] for each in stagecraft("history", "--json").last_line["rollbacks"]]
    assert reasons == ["it was right", REASON]


def test_it_is_what_the_pusher_pushed_last(stagecraft, pushed):
    """Whoever asks ML Metadata for the last PushedModel of the Pusher gets what is served."""
    assert stagecraft("push", "--rollback", "--reason", REASON).code == 0
    store = file.open_store(pushed.output.folder / "metadata.db")
    node = store.get_context_by_type_and_name("node", "quickstart.Pusher")
    assert node is not None
    artifacts = store.get_artifacts_by_context(node.id)
    newest = max(artifacts, key=lambda artifact: artifact.id)
    assert newest.custom_properties["pushed_destination"].string_value == str(pushed.newest)
    assert newest.uri == str(pushed.output.folder / "models" / "a"), "the artifact of its model"
    (execution,) = store.get_executions_by_type("stagecraft.Rollback")
    events = store.get_events_by_execution_ids([execution.id])
    assert {event.type for event in events} == {pb.Event.INPUT, pb.Event.OUTPUT}
    first = next(event.artifact_id for event in events if event.type == pb.Event.INPUT)
    (restored,) = store.get_artifacts_by_id([first])
    assert restored.custom_properties["pushed_version"].string_value == str(pushed.numbers[0])


def test_a_store_that_another_process_locks(pushed, monkeypatch):
    def locked(*given):
        raise errors.AbortedError("database is locked")

    monkeypatch.setattr(rollbacks.ml_metadata.MetadataStore, "put_execution", locked)
    metadata_db = pushed.output.folder / "metadata.db"
    done = rollbacks.Rollback(9, *pushed.numbers, "me", REASON, 1.0)
    with pytest.raises(UserError) as caught:
        rollbacks.write(metadata_db, str(pushed.serving), done)
    assert (caught.value.file, caught.value.record) == (str(metadata_db), "9")
    assert rollbacks.read(metadata_db) == []


def test_a_folder_without_metadata(stagecraft, pushed):
    folder = str(pushed.serving)
    done = stagecraft("push", "--rollback", "--reason", REASON, "--directory", folder)
    assert done.code == 0 and str(pushed.newest / "rollback.json") in done.stdout
    assert (pushed.newest / "saved_model.pb").read_text() == "a"
    assert stagecraft("history", "--json").last_line["rollbacks"] == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--rollback"),
        (("--rollback",), "--reason"),
        (("--rollback", "--reason", "r", "--output", "a", "--directory", "b"), "--directory"),
        (("--rollback", "--reason", "r", "--to", "7"), "--to"),
        (("--rollback", "--reason", "r", "--output", "none"), "none"),
    ],
)
def test_refusals(stagecraft, pushed, words, named):
    refused = stagecraft("push", *words, "--json")
    assert refused.code == 1 and named in refused.last_line["error"]
    assert len(versions.numbers(str(pushed.serving))) == 2


def test_an_output_that_pushed_nothing(stagecraft, tmp_path):
    output = Output(tmp_path / "runs" / "quickstart")
    output.whole("2026-01-02T03:04:05.6", blessed=0)
    assert stagecraft("push", "--rollback", "--reason", "r").code == 1
    assert rollbacks.serving_folder(output.folder / "metadata.db") is None


def test_several_outputs(tmp_path):
    Pushed(tmp_path / "runs" / "one", "a")
    Pushed(tmp_path / "runs" / "two", "a")
    with pytest.raises(UserError) as caught:
        runs.only_output(tmp_path / "runs")
    assert caught.value.suggestion == f"--output {tmp_path / 'runs' / 'one'}"
