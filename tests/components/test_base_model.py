"""The model that a training continues: the last verdict of other data, or the model of a run."""

import pathlib
from collections.abc import Callable

import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from recorded_runs import RecordedRuns
from tfx import types
from tfx.types import standard_artifacts

from stagecraft.components import resolvers
from stagecraft.components.resolvers import BaseModel, NoModelError

DAYS = ("first", "second", "third")

Event = metadata_store_pb2.Event


class Recorded:
    """Three days in an ML Metadata store: each trains, blesses and pushes a model."""

    def __init__(self, folder: pathlib.Path):
        config = metadata_store_pb2.ConnectionConfig()
        config.fake_database.SetInParent()
        self.store = metadata_store.MetadataStore(config)
        self._execution = self.store.put_execution_type(
            metadata_store_pb2.ExecutionType(name="Step")
        )
        self._run = self.store.put_context_type(metadata_store_pb2.ContextType(name="pipeline_run"))
        self.inputs: dict[str, list[types.Artifact]] = {
            "model": [],
            "model_blessing": [],
            "pushed_model": [],
        }
        self.models = {}
        for day in DAYS:
            (folder / day).mkdir()
            model = self._artifact("model", standard_artifacts.Model, str(folder / day))
            model.set_string_custom_property(
                resolvers.EXAMPLES_PROPERTY, resolvers.examples_identity([day])
            )
            blessing = self._artifact("model_blessing", standard_artifacts.ModelBlessing, "")
            blessing.set_int_custom_property("blessed", int(day != "third"))
            blessing.set_int_custom_property("current_model_id", model.id)
            pushed = self._artifact("pushed_model", standard_artifacts.PushedModel, "")
            pushed.set_int_custom_property("pushed", int(day == "first"))
            self._execute(day, [], [model])
            self._execute(day, [model], [blessing])
            self._execute(day, [model], [pushed])
            self.models[day] = model

    def roll_back(self, day: str) -> None:
        """As ``stagecraft push --rollback`` records that the model of a day is served again."""
        restored = self.inputs["pushed_model"][DAYS.index(day)]
        pushed = self._artifact("pushed_model", standard_artifacts.PushedModel, "")
        pushed.set_int_custom_property("pushed", 1)
        self._execute("", [restored], [pushed])
        self.inputs["pushed_model"][DAYS.index(day)] = pushed  # the next one restores this one

    def _artifact(self, key: str, kind: type, uri: str) -> types.Artifact:
        type_id = self.store.put_artifact_type(metadata_store_pb2.ArtifactType(name=kind.TYPE_NAME))
        stored = metadata_store_pb2.Artifact(type_id=type_id, uri=uri)
        artifact = kind()
        [artifact.id] = self.store.put_artifacts([stored])
        artifact.uri = uri
        self.inputs[key].append(artifact)
        return artifact

    def _execute(self, run: str, given: list[types.Artifact], made: list[types.Artifact]) -> None:
        events = [
            (
                metadata_store_pb2.Artifact(id=each.id, type_id=self._type(each), uri=each.uri),
                Event(type=kind),
            )
            for kind, artifacts in ((Event.INPUT, given), (Event.OUTPUT, made))
            for each in artifacts
        ]
        contexts = [metadata_store_pb2.Context(type_id=self._run, name=run)] if run else []
        self.store.put_execution(
            metadata_store_pb2.Execution(type_id=self._execution),
            events,
            contexts,
            reuse_context_if_already_exist=True,
        )

    def _type(self, artifact: types.Artifact) -> int:
        return int(self.store.get_artifact_type(artifact.type_name).id)


@pytest.fixture
def recorded(tmp_path: pathlib.Path) -> Recorded:
    return Recorded(tmp_path)


@pytest.fixture
def resolve(recorded: Recorded) -> Callable[..., str | None]:
    """Choice and the day's examples -> the day of the model."""

    def resolve(choice: str, day: str = "tomorrow") -> str | None:
        examples = standard_artifacts.Examples()
        examples.uri = day
        given = {"examples": [examples]} | recorded.inputs
        result = BaseModel(choice).resolve_artifacts(recorded.store, given)
        assert set(result) == set(given)
        days = {model.id: day for day, model in recorded.models.items()}
        found = [days[model.id] for model in result["model"]]
        return found[0] if found else None

    return resolve


@pytest.mark.parametrize(
    ("choice", "day", "expected"),
    [
        ("last_blessed", "tomorrow", "second"),
        ("last_blessed", "second", "first"),  # the day is repeated
        ("last_blessed", "first", None),  # the same, after other days
        ("last_pushed", "tomorrow", "first"),
        ("last_pushed", "first", None),
        ("run:third", "third", "third"),
        ("run:first", "tomorrow", "first"),
        ("run:fir", "tomorrow", "first"),
    ],
)
def test_the_model(choice, day, expected, resolve):
    assert resolve(choice, day) == expected


def test_a_model_whose_files_are_gone_is_passed_over(resolve, recorded):
    pathlib.Path(recorded.models["second"].uri).rmdir()
    assert resolve("last_blessed") == "first"
    with pytest.raises(NoModelError) as caught:
        resolve("run:second")
    assert (caught.value.setting, caught.value.value) == ("train.initial_weights", "run:second")


def test_after_a_rollback_the_last_pushed_model_is_the_one_that_is_served(resolve, recorded):
    recorded.inputs["pushed_model"][1].set_int_custom_property("pushed", 1)
    assert resolve("last_pushed") == "second"
    for _ in range(2):  # a version that a rollback wrote may come back, too
        recorded.roll_back("first")
        assert resolve("last_pushed") == "first"
    assert resolve("last_pushed", "first") is None


def test_the_number_of_queries_does_not_grow_with_the_pushes(tmp_path):
    store, given = RecordedRuns(), {"examples": [standard_artifacts.Examples()], "model": []}
    given["pushed_model"] = []
    for _ in range(60):
        given["model"].append(store.execute([], standard_artifacts.Model, str(tmp_path)))
        pushed = store.execute(given["model"][-1:], standard_artifacts.PushedModel)
        pushed.set_int_custom_property("pushed", 1)
        given["pushed_model"].append(pushed)
    found = BaseModel("last_pushed").resolve_artifacts(store, given)["model"]
    assert found == given["model"][-1:]
    assert store.queries <= 6


def test_a_run_that_is_not_known_or_one_of_several(resolve, recorded):
    with pytest.raises(NoModelError):
        resolve("run:never")
    recorded._execute("third-again", [], [])
    assert resolve("run:third") == "third"
    with pytest.raises(NoModelError) as caught:
        resolve("run:thi")
    assert caught.value.value == "run:thi"


def test_examples_are_the_same_in_any_order():
    assert resolvers.examples_identity(["a", "b"]) == resolvers.examples_identity(["b", "a"])
    assert resolvers.examples_identity(["a"]) != resolvers.examples_identity(["a", "b"])
