"""Steps of our entrypoint: drivers, inputs that come as parameters, and blessings."""

import json
import pathlib
from typing import Any

import pytest
from damages import WAYS, fill
from executor_input import artifact, executor_input, schema
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import DamagedArtifactError
from stagecraft.components.object_store import tensorflow_files
from stagecraft.pipeline.kubeflow.entrypoint import records
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.entrypoint.run import resolve, run

PIPELINE = "minio://bucket/base/name"
RUN = "minio://bucket/base/name/run"


class Seen:
    """What the executors below were given."""

    inputs: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    arguments: Any = ()
    blessed = 1


class Bless(base_executor.BaseExecutor):
    """Blesses the model, or does not."""

    def Do(self, input_dict, output_dict, exec_properties):
        Seen.inputs = {
            name: [(a.type_name, a.uri) for a in given] for name, given in input_dict.items()
        }
        Seen.properties = dict(exec_properties)
        for given in input_dict.values():
            for each in given:
                assert fileio.exists(each.uri)
        for [output] in output_dict.values():
            output.set_int_custom_property("blessed", Seen.blessed)
            output.set_string_custom_property("current_model", input_dict["model"][0].uri)
            if baseline := input_dict.get("baseline_model"):
                output.set_string_custom_property("baseline_model", baseline[0].uri)
                output.set_int_custom_property("baseline_model_id", baseline[0].id)


class Generate(base_executor.BaseExecutor):
    """Notes what it was given."""

    def Do(self, input_dict, output_dict, exec_properties):
        Seen.properties = dict(exec_properties)


@pytest.fixture
def store(folder_store, tmp_path, monkeypatch):
    """The object store; the launcher's copies are in ``tmp_path / root``."""
    monkeypatch.setenv("STAGECRAFT_LAUNCHER_ROOT", str(tmp_path / "root"))
    model = tmp_path / "root" / "minio" / RUN.removeprefix("minio://") / "Trainer/salt/model"
    model.mkdir(parents=True)
    return folder_store / "minio"


MODEL = {"name": "3", "uri": f"{RUN}/Trainer/salt/model", "type": {"instanceSchema": ""}}
"""As the backend sends it: without its type."""

OF_EVALUATOR = {
    "parameters": {"baseline_model": {"parameterType": "STRING"}},
    "artifacts": {"model": {"artifactType": {"instanceSchema": schema("tfx.Model")}}},
}


def _ran(tmp_path, executor, parameters, inputs, output, spec=None, *, resolved=None, beam_args=()):
    """Runs an executor; ``output`` is the name, address and type of its output, which it gives."""
    name, uri, kind = output
    given = executor_input(
        tmp_path / "output_metadata.json", parameters, inputs, {name: artifact(uri, kind)}
    )
    invocation = Invocation(json.dumps(given), json.dumps(spec or {}), [name])
    run(invocation, PIPELINE, f"{__name__}.{executor}", resolved or {}, list(beam_args))
    [written] = invocation.output()["artifacts"][name]["artifacts"]
    return written


def _evaluated(tmp_path, executor, output, baseline, *beam_args):
    """Runs an executor with the inputs of an Evaluator; gives its output."""
    return _ran(
        tmp_path,
        executor,
        {"baseline_model": baseline},
        {"model": MODEL},
        output,
        OF_EVALUATOR,
        resolved={"baseline_model": schema("tfx.Model")},
        beam_args=beam_args,
    )


def _evaluate(tmp_path, baseline=""):
    output = "blessing", f"{RUN}/Evaluator/salt/blessing", "tfx.ModelBlessing"
    return _evaluated(tmp_path, "Bless", output, baseline)


def test_a_blessed_model_is_known_to_later_runs(store, tmp_path, monkeypatch):
    written = _evaluate(tmp_path)
    assert written["uri"] == f"{RUN}/Evaluator/salt/blessing"
    assert written["metadata"]["current_model"] == f"{RUN}/Trainer/salt/model"
    (model := store / "bucket/base/name/run/Trainer/salt/model").mkdir(parents=True)
    (model / "file").touch()
    found = next(records.recorded("minio://bucket/base/name"))
    assert found["Model"]["uri"] == f"{RUN}/Trainer/salt/model"


def test_one_that_is_not_blessed_is_not(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Seen, "blessed", 0)
    _evaluate(tmp_path)
    assert not (store / "bucket" / "base" / "name" / "blessed_models").exists()


def test_no_baseline_is_an_input_without_artifacts(store, tmp_path):
    _evaluate(tmp_path)
    assert Seen.inputs.keys() == {"model"}
    assert "baseline_model" not in Seen.properties


def test_a_baseline_is_fetched_and_told_by_its_address(store, tmp_path):
    (old := store / "bucket/base/name/old/model").mkdir(parents=True)
    (old / "saved_model.pb").write_text("model")
    address = "minio://bucket/base/name/old/model"
    written = _evaluate(tmp_path, json.dumps({"uri": address, "metadata": {}}))
    [(kind, copy)] = Seen.inputs["baseline_model"]
    assert kind == "Model"
    assert not pathlib.Path(copy).exists(), "the copy is gone with the step"
    assert written["metadata"]["baseline_model"] == address


def _resolve(folder, tmp_path):
    given = executor_input(
        tmp_path / "inputs" / "output.json",
        {
            "input_base": str(folder),
            "input_config": '{"splits": [{"name": "all", "pattern": "span-{SPAN}/*"}]}',
        },
    )
    spec = {
        "parameters": {name: {"parameterType": "STRING"} for name in ("input_base", "input_config")}
    }
    invocation = Invocation(json.dumps(given), json.dumps(spec), [])
    driver = "tfx.components.example_gen.driver.FileBasedDriver"
    resolve(invocation, driver, {"examples": schema("tfx.Examples")})
    return str(invocation.output()["parameterValues"]["driver_output"])


def test_a_driver_looks_at_the_data_of_the_moment(store, tmp_path):
    data = tmp_path / "data"
    (data / "span-1").mkdir(parents=True)
    (data / "span-1" / "a.csv").write_text("x\n1\n")
    first = _resolve(data, tmp_path)
    assert _resolve(data, tmp_path) == first
    (data / "span-2").mkdir()
    (data / "span-2" / "a.csv").write_text("x\n2\n")
    second = _resolve(data, tmp_path)
    assert second != first

    spec = {"parameters": {"input_base": {"parameterType": "STRING"}}}
    given = {"driver_output": second, "input_base": str(data)}
    output = "examples", f"{RUN}/Gen/salt/examples", "tfx.Examples"
    written = _ran(tmp_path, "Generate", given, None, output, spec)
    assert Seen.properties["span"] == 2
    assert "span-2/*" in Seen.properties["input_config"]
    assert "driver_output" not in Seen.properties
    assert written["metadata"]["span"] == 2
    assert "input_fingerprint" in written["metadata"]


class Copy(base_executor.BaseExecutor):
    """Writes an output, and may damage its input or fail."""

    act = staticmethod(lambda path: None)

    def Do(self, input_dict, output_dict, exec_properties):
        [model] = input_dict["model"]
        Copy.act(pathlib.Path(model.uri) / "saved.pb")
        for name, [output] in output_dict.items():
            fileio.makedirs(output.uri)
            with fileio.open(f"{output.uri}/{name}", "w") as file:
                file.write(name)


def _copy(tmp_path, text):
    """Runs Copy on the launcher's copy of a model with a manifest; gives the output artifact."""
    model = artifact(MODEL["uri"], "tfx.Model", metadata={"manifest": text})
    output = "pushed_model", f"{RUN}/Copy/salt/pushed_model", "tfx.PushedModel"
    return _ran(tmp_path, "Copy", {}, {"model": model}, output)


@pytest.fixture
def model(store, tmp_path):
    """Folder of the launcher's copy of a model, and the model's manifest."""
    folder = tmp_path / "root" / "minio" / RUN.removeprefix("minio://") / "Trainer/salt/model"
    folder.rmdir()
    fill(standard_artifacts.Model(), folder)
    return folder, manifest.store(str(folder), manifest.describe(str(folder)))


def test_outputs_get_a_manifest(model, tmp_path):
    _, text = model
    written = _copy(tmp_path, text)
    assert json.loads(written["metadata"]["manifest"])["pushed_model"][0] == len("pushed_model")


@pytest.mark.parametrize("when", ["before", "meanwhile", "and the step fails"])
@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_input_is_refused(model, tmp_path, monkeypatch, when, way):
    folder, text = model
    if when == "before":
        WAYS[way](folder / "saved.pb")
    elif when == "meanwhile":
        monkeypatch.setattr(Copy, "act", staticmethod(WAYS[way]))
    else:

        def act(path):
            WAYS[way](path)
            raise ZeroDivisionError

        monkeypatch.setattr(Copy, "act", staticmethod(act))
    with pytest.raises(DamagedArtifactError) as caught:
        _copy(tmp_path, text)
    assert (caught.value.file, caught.value.kind) == (str(folder / "saved.pb"), "Model")
    assert not (tmp_path / "output_metadata.json").exists()


class Tell(base_executor.BaseExecutor):
    """Writes a page as its output, and a confusion matrix as another one's property."""

    def Do(self, input_dict, output_dict, exec_properties):
        [page], [figures] = output_dict["report"], output_dict["classification_metrics"]
        fileio.makedirs(page.uri)
        with fileio.open(f"{page.uri}/report.html", "w") as file:
            file.write("<!DOCTYPE html>")
        page.set_string_custom_property("file", "report.html")
        figures.set_json_value_custom_property("confusionMatrix", {"rows": [{"row": [1, 2]}]})


def test_a_page_is_at_its_files_address(store, tmp_path):
    """Kubeflow's user interface opens what an artifact's address names, and lists no folder."""
    kinds = {"report": "system.HTML", "classification_metrics": "system.ClassificationMetrics"}
    output_file = tmp_path / "output_metadata.json"
    uri = f"{RUN}/TrainingReport/salt"
    outputs = {key: artifact(f"{uri}/{key}", kind) for key, kind in kinds.items()}
    given = json.dumps(executor_input(output_file, outputs=outputs))
    run(Invocation(given, "{}", list(kinds)), PIPELINE, f"{__name__}.Tell", {}, [])
    written = json.loads(output_file.read_text())["artifacts"]
    [page], [figures] = (written[key]["artifacts"] for key in kinds)
    assert page["uri"] == f"{uri}/report/report.html"
    assert figures["uri"] == f"{uri}/classification_metrics"
    assert figures["metadata"]["confusionMatrix"] == {"rows": [{"row": [1, 2]}]}


class Count(base_beam_executor.BaseBeamExecutor):
    """Notes what it was given, and writes an output."""

    def Do(self, input_dict, output_dict, exec_properties):
        Seen.inputs = {name: given[0].uri for name, given in input_dict.items()}
        Seen.arguments = self._beam_pipeline_args
        for name, [output] in output_dict.items():
            with fileio.open(f"{output.uri}/{name}", "w") as file:
                file.write(name)


def _count(tmp_path, *beam_args):
    output = "evaluation", f"{RUN}/Evaluator/salt/evaluation", "tfx.ModelEvaluation"
    baseline = json.dumps({"uri": f"{PIPELINE}/old/model", "metadata": {}})
    written = _evaluated(tmp_path, "Count", output, baseline, *beam_args)
    assert written["uri"] == output[1]


def test_workers_elsewhere_get_addresses(store, tmp_path, monkeypatch):
    installed = []
    monkeypatch.setattr(tensorflow_files, "install", lambda: installed.append(True))
    outputs = store / RUN.removeprefix("minio://") / "Evaluator/salt/evaluation"
    outputs.mkdir(parents=True)
    (outputs / "left-by-a-failed-attempt").touch()
    given = ("--runner=FlinkRunner", "--environment_type=EXTERNAL", "--sdk_container_image=unused")
    _count(tmp_path, *given)
    assert Seen.inputs == {
        "model": f"{RUN}/Trainer/salt/model",
        "baseline_model": f"{PIPELINE}/old/model",
    }
    assert [path.name for path in outputs.iterdir()] == ["evaluation"]
    assert any(each.startswith("--beam_plugin=") for each in Seen.arguments) and installed


def test_workers_in_the_pod_get_copies(store, tmp_path):
    (store / PIPELINE.removeprefix("minio://") / "old/model").mkdir(parents=True)
    (
        tmp_path / "root" / "minio" / RUN.removeprefix("minio://") / "Evaluator/salt/evaluation"
    ).mkdir(parents=True)
    image = "--sdk_container_image=unused"
    for given in ([image], [image, "--runner=FlinkRunner", "--environment_type=LOOPBACK"]):
        _count(tmp_path, *given)
        assert not any("://" in address for address in Seen.inputs.values())
        assert not any("plugin" in each for each in Seen.arguments)
