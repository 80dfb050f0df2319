"""Which model was blessed or pushed last, told by the runs before through the object store."""

import json

import pytest
from executor_input import executor_input

from stagecraft.components.pusher import versions
from stagecraft.components.pusher.rollback import roll_back
from stagecraft.components.resolvers import EXAMPLES_PROPERTY, NoModelError, examples_identity
from stagecraft.pipeline.kubeflow.entrypoint import records
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.entrypoint.records import Artifact, look_up

PIPELINE = "minio://bucket/base/name"
SERVING = "minio://bucket/base/serving/name"
TYPES = {"model": "Model", "model_blessing": "ModelBlessing"}


@pytest.fixture
def store(folder_store):
    return folder_store / "minio" / "bucket" / "base" / "name"


def _blessed(store, run):
    """Records a model of a run; its address."""
    (store / run / "model").mkdir(parents=True)
    (store / run / "model" / "saved_model.pb").write_text(run)
    model, blessing = f"{PIPELINE}/{run}/model", f"{PIPELINE}/{run}/blessing"
    records.record(
        PIPELINE,
        {
            "Model": Artifact(uri=model, metadata={"steps": 3}),
            "ModelBlessing": Artifact(uri=blessing, metadata={"blessed": 1}),
        },
    )
    return model


def _invocation(tmp_path, *candidates):
    lookup = {"name": "lookup", "uri": f"{PIPELINE}/run/Baseline/salt/lookup"}
    inputs = {f"candidate_{index}": {"uri": uri} for index, uri in enumerate(candidates)}
    output_file = tmp_path / "out" / "output_metadata.json"
    given = executor_input(output_file, inputs=inputs, outputs={"lookup": lookup})
    return Invocation(json.dumps(given), "{}", ["lookup"])


def _found(tmp_path, *candidates):
    invocation = _invocation(tmp_path, *candidates)
    look_up(invocation, PIPELINE, TYPES)
    values = invocation.output()["parameterValues"]
    return {name: json.loads(value)["uri"] if value else None for name, value in values.items()}


def test_nothing_was_blessed(store, tmp_path):
    assert _found(tmp_path) == {"model": None, "model_blessing": None}


def test_the_last_one(store, tmp_path):
    _blessed(store, "first")
    second = _blessed(store, "second")
    assert _found(tmp_path) == {"model": second, "model_blessing": f"{PIPELINE}/second/blessing"}


def test_not_the_candidate_itself(store, tmp_path):
    first, second = _blessed(store, "first"), _blessed(store, "second")
    assert _found(tmp_path, second)["model"] == first
    assert _found(tmp_path, first)["model"] == second


def test_one_that_was_removed_is_passed_over(store, tmp_path):
    first, _ = _blessed(store, "first"), _blessed(store, "second")
    (store / "second" / "model" / "saved_model.pb").unlink()
    (store / "second" / "model").rmdir()
    assert _found(tmp_path)["model"] == first


def test_many_at_the_same_time_are_all_kept(store):
    models = {_blessed(store, str(number)) for number in range(20)}
    records = [json.loads(path.read_text()) for path in (store / "blessed_models").iterdir()]
    assert {record["Model"]["uri"] for record in records} == models


def test_people_can_see_what_was_found(store, tmp_path):
    model = _blessed(store, "first")
    invocation = _invocation(tmp_path)
    look_up(invocation, PIPELINE, TYPES)
    [lookup] = invocation.output()["artifacts"]["lookup"]["artifacts"]
    assert lookup["metadata"] == {"model": model, "model_blessing": f"{PIPELINE}/first/blessing"}


def _trained(store, day, folder=records.BLESSED, kind="ModelBlessing"):
    """Records a model that was trained on the examples of a day; its address."""
    model = f"{PIPELINE}/{day}/Trainer/salt/model"
    (store / day / "Trainer" / "salt" / "model").mkdir(parents=True, exist_ok=True)
    (store / day / "Trainer" / "salt" / "model" / "file").touch()
    trained = Artifact(uri=model, metadata={EXAMPLES_PROPERTY: examples_identity([_examples(day)])})
    verdict = Artifact(uri=f"{PIPELINE}/{day}/verdict", metadata={})
    records.record(PIPELINE, {"Model": trained, kind: verdict}, folder)
    return model


def _examples(day):
    return f"{PIPELINE}/{day}/examples"


def _base(tmp_path, choice, day):
    """The model that a training on the examples of a day continues."""
    invocation = _invocation(tmp_path, _examples(day))
    look_up(invocation, PIPELINE, {"examples": "Examples", "model": "Model"}, choice)
    values = invocation.output()["parameterValues"]
    assert values["examples"] == ""
    return json.loads(values["model"])["uri"] if values["model"] else None


def test_the_base_of_a_training(store, tmp_path):
    first, second = (_trained(store, day) for day in ("first", "second"))
    _trained(store, "first", records.PUSHED, "PushedModel")
    assert _base(tmp_path, "last_blessed", "third") == second
    # A day that is repeated starts where it started before.
    assert _base(tmp_path, "last_blessed", "second") == first
    assert _base(tmp_path, "last_blessed", "first") is None
    assert _base(tmp_path, "last_pushed", "second") == first
    assert _base(tmp_path, "last_pushed", "first") is None


def _pushed(store, tmp_path, day):
    """Pushes the model of a day as a new version, which a run recorded; its address."""
    model = _trained(store, day)
    (tmp_path / day).mkdir(parents=True)
    (tmp_path / day / "saved_model.pb").write_text(day)
    version = versions.write_version(str(tmp_path / day), SERVING, {"name": "name"})
    trained = Artifact(uri=model, metadata={EXAMPLES_PROPERTY: examples_identity([_examples(day)])})
    verdict = Artifact(uri="", metadata={"pushed": 1, "pushed_destination": version.path})
    records.record(PIPELINE, {"Model": trained, "PushedModel": verdict}, records.PUSHED)
    return model


def test_after_a_rollback_the_base_is_the_model_that_is_served(store, tmp_path, monkeypatch):
    first, second = (_pushed(store, tmp_path, day) for day in ("first", "second"))
    assert _base(tmp_path, "last_pushed", "third") == second
    roll_back(SERVING, "worse")
    assert _base(tmp_path, "last_pushed", "third") == first
    assert _base(tmp_path, "last_pushed", "second") == first
    with monkeypatch.context() as patched:
        patched.setattr(versions, "complete", lambda folder: [][folder])  # cannot be read
        assert _base(tmp_path, "last_pushed", "third") == second
    third = _pushed(store, tmp_path, "third")
    assert _base(tmp_path, "last_pushed", "fourth") == third


def test_the_base_is_the_model_of_a_run(store, tmp_path):
    first = _trained(store, "first")
    _trained(store, "second")
    assert _base(tmp_path, "run:first", "first") == first
    with pytest.raises(NoModelError) as caught:
        _base(tmp_path, "run:never", "first")
    assert caught.value.value == "run:never"
