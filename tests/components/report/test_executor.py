"""The executor on real examples, Transform's graph, a record and a curve."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import yaml
from artifacts import artifact, training_inputs
from tfx.types import Artifact, Channel, standard_artifacts

from stagecraft.components.object_store import location
from stagecraft.components.report import artifacts, collect
from stagecraft.components.report.component import TrainingReport, TrainingReportSpec
from stagecraft.components.report.executor import Executor
from stagecraft.components.report.report_data import ReportData
from stagecraft.trainer_module.training.monitoring.curve import Curve, Point


@pytest.fixture(scope="module")
def model_run(one_device: ReportData, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """As our Trainer leaves it."""
    folder = tmp_path_factory.mktemp("model_run")
    assert one_device.training is not None
    (folder / "record.json").write_text(json.dumps(one_device.training.record))
    Curve(
        Point(step, 1 / step, {"accuracy": step / 30}, 0.01, 900.0) for step in (10, 20, 30)
    ).write(folder)
    return folder


@pytest.fixture
def given(training_data: Any, model_run: pathlib.Path, tmp_path: pathlib.Path) -> Any:
    """Input artifacts by role."""
    found = training_inputs(training_data.examples.parent)
    found["examples"][0].set_string_custom_property("source", "tiny")
    found["examples"][0].set_string_custom_property("fingerprint", "ab12")
    pushed = standard_artifacts.PushedModel()
    (tmp_path / "serving" / "17").mkdir(parents=True)
    pushed.set_int_custom_property("pushed", 1)
    pushed.set_string_custom_property("pushed_destination", str(tmp_path / "serving" / "17"))
    pushed.set_string_custom_property("pushed_version", "17")
    trained = artifact(standard_artifacts.ModelRun, model_run)
    return found | {"pushed_model": [pushed], "model_run": [trained]}


def write(given: Any, folder: pathlib.Path) -> dict[str, Artifact]:
    """The outputs by key."""
    outputs = {
        key: artifact(parameter.type, folder / key)
        for key, parameter in TrainingReportSpec.OUTPUTS.items()
    }
    properties = {"pipeline_name": "tiny", "settings": "name: tiny\n", "metadata_db": ""}
    Executor().Do(given, {key: [each] for key, each in outputs.items()}, properties)
    return outputs


def test_what_is_written(given, tmp_path):
    outputs = write(given, tmp_path)
    page = (tmp_path / "report" / "report.html").read_text()
    assert outputs["report"].get_string_custom_property(artifacts.FILE) == "report.html"
    assert "Not evaluated" in page
    assert "no record.json" not in page
    assert "tiny: 24 train, 10 val, 10 eval." in page
    assert "SHA-256" in page and "ab12" in page
    assert "name: tiny\n</pre>" in page.replace("&#34;", '"')
    # Four classes: what it is, and what five epochs made of it.
    assert page.count("data:image/png") == 4 * 6
    assert (tmp_path / "summary" / "summary.md").read_text().startswith("# tiny")
    assert outputs["metrics"].get_float_custom_property("images_per_second") == 950.5
    assert not outputs["classification_metrics"].has_custom_property("confusionMatrix")


def test_the_card_is_beside_the_pushed_model(given, tmp_path):
    write(given, tmp_path)
    own, pushed = tmp_path / "model_card", tmp_path / "serving" / "17"
    for name in ("model_card.json", "model_card.md"):
        assert (pushed / name).read_text() == (own / name).read_text()
    assert json.loads((pushed / "model_card.json").read_text())["made_with"]["tfx"] == "1.16.0"


def test_a_pushed_model_that_is_gone_stays_so(given, tmp_path):
    (tmp_path / "serving" / "17").rmdir()
    write(given, tmp_path)
    assert not (tmp_path / "serving" / "17").exists()


def test_a_model_that_was_not_pushed(given, tmp_path):
    given["pushed_model"][0].set_int_custom_property("pushed", 0)
    write(given, tmp_path)
    assert not list((tmp_path / "serving" / "17").iterdir())


def test_a_run_fn_without_a_record(given, tmp_path):
    given["model_run"][0].uri = str(tmp_path)
    write(given, tmp_path)
    page = (tmp_path / "report" / "report.html").read_text()
    assert 'id="learning"' not in page
    for text in (page, (tmp_path / "summary" / "summary.md").read_text()):
        assert "no record.json" in text.replace("\\", "")
    (tmp_path / "record.json").write_text("[1]")
    write(given, tmp_path)
    assert "no record.json" in (tmp_path / "report" / "report.html").read_text()


def test_the_curves_are_what_was_noted(given, tmp_path):
    found = collect.read_training(given["model_run"][0], None)
    assert found is not None
    assert found.curve[1] == Point(20, 0.05, {"accuracy": 20 / 30}, 0.01, 900.0)
    assert len(found.curve) == 3


INPUTS = {
    "examples": standard_artifacts.Examples,
    "schema": standard_artifacts.Schema,
    "model": standard_artifacts.Model,
    "model_run": standard_artifacts.ModelRun,
    "evaluation": standard_artifacts.ModelEvaluation,
}


def component(**settings: str) -> TrainingReport:
    return TrainingReport(**{name: Channel(type=kind) for name, kind in INPUTS.items()}, **settings)


def test_in_somebodys_pipeline():
    report = component()
    assert set(report.inputs) == {*INPUTS}
    assert report.outputs["report"].type_name == "system.HTML"
    assert report.outputs["classification_metrics"].type_name == "system.ClassificationMetrics"


def test_settings_are_those_that_the_training_was_given(one_device):
    """A parameter of the run counts, not what was compiled."""
    assert one_device.training is not None
    record = one_device.training.record
    given = record["settings"] | {"train_steps": 7, "train_model": "resnet20"}
    trained = dataclasses.replace(one_device.training, record=record | {"settings": given})
    compiled = "name: tiny\ntrain:\n  epochs: 3\n  seed: 1\nevaluate:\n  min_accuracy: 0.5\n"
    assert yaml.safe_load(collect._settings(compiled, trained)) == {
        "name": "tiny",
        "evaluate": {"min_accuracy": 0.5},
        "train": {"model": "resnet20", "steps": 7},
    }


SECRETS = """name: tiny
beam: {args: [--password, c4n4ry, --s3_token=c4n4ry]}
kubeflow: {every_step: {env: {HF_TOKEN: c4n4ry, PROXY: 'https://me:c4n4ry@host'}}}
push: {directory: 's3://bucket/x?X-Amz-Signature=c4n4ry'}
"""
"""As a pipeline of somebody's own may hand it over, and as earlier versions compiled it."""


def test_no_secret_of_the_settings_is_shown(one_device):
    for trained in (one_device.training, None):
        assert "c4n4ry" not in collect._settings(SECRETS, trained)
    assert "kubeflow" not in yaml.safe_load(collect._settings(SECRETS, one_device.training))


def test_no_secret_of_the_settings_is_recorded():
    report = component(settings=SECRETS)
    assert "c4n4ry" not in report.exec_properties["settings"]
    assert yaml.safe_load(report.exec_properties["settings"])["name"] == "tiny"


def test_no_secret_of_an_artifact_is_shown():
    model = standard_artifacts.Model()
    model.uri = "s3://key:c4n4ry@bucket/model"
    model.set_string_custom_property("source", "x.tar.gz?sig=c4n4ry")
    item = collect._item("model", model)
    assert (item.uri, item.properties) == ("s3://…@bucket/model", {"source": "x.tar.gz?sig=…"})


def test_a_copy_is_told_by_its_address():
    model = standard_artifacts.Model()
    model.uri, model.id = "/minio/bucket/model", 5
    model.set_json_value_custom_property("steps", 7.0)
    model.set_string_custom_property("code_fingerprint", "c0de")
    with location.copied({"/minio/bucket/model": "minio://bucket/model"}):
        item = collect._item("model", model)
        assert location.permanent_uri("/here") == "/here"
    assert (item.uri, item.id) == ("minio://bucket/model", 0)
    assert item.properties == {"code_fingerprint": "c0de", "steps": "7"}
    assert collect._item("model", model).id == 5
