"""What keeps TFX's own compiled pipelines from running on Kubeflow, and does not keep ours.

The numbers are those of the table in docs/explanation/kubeflow.md.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import compiled_by
import pytest
import tiny_nodes
import yaml
from executor_input import artifact, executor_input, schema
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor as stock_entrypoint

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import linter
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.entrypoint.run import run

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def stock(folder):
    return compiled_by.stock(compiled_by.points(), folder)


@pytest.fixture(scope="module")
def ours(folder):
    return compiled_by.ours(compiled_by.points(), folder)["pipelineSpec"]


def rules(path):
    return {finding.rule for finding in linter.check(path.read_text())}


def test_1_schema_version(tmp_path, ours):
    compiled_by.stock(tiny_nodes.pipeline(), tmp_path, version="2.0")
    found = linter.check((tmp_path / "stock.yaml").read_text())
    others = ("tfx-input-type", "tfx-uri", "unknown-producer")  # under each version
    assert sorted(finding.rule for finding in found) == ["schema-version", *others]
    assert ours["schemaVersion"] == "2.1.0"


def test_2_json_and_what_yaml_loses(folder, stock, ours):
    compiled_by.stock(compiled_by.points(), folder, "stock.json")
    assert "pipeline-job" in rules(folder / "stock.json")
    assert "defaultPipelineRoot" not in stock
    assert next(yaml.safe_load_all((folder / "ours.yaml").read_text())) == ours
    assert ours["defaultPipelineRoot"] == compiled_by.ROOT
    assert rules(folder / "ours.yaml") == set()


def test_3_resolvers(folder, stock, ours):
    kinds = {kind for each in stock["deploymentSpec"]["executors"].values() for kind in each}
    assert kinds == {"container", "resolver"}
    assert "executor-kind" in rules(folder / "stock.yaml")
    assert {k for each in ours["deploymentSpec"]["executors"].values() for k in each} == {
        "container"
    }
    tasks = ours["root"]["dag"]["tasks"]
    resolver = tasks["latest-blessed-model-resolver"]  # Argo takes no underscores
    assert resolver["taskInfo"]["name"] == "latest-blessed-model-resolver"
    assert "cachingOptions" not in resolver
    # A parameter: a new artifact in each run would keep the Evaluator from the cache.
    source = tasks["Evaluator"]["inputs"]["parameters"]["baseline_model"]
    assert source["taskOutputParameter"]["producerTask"] == "latest-blessed-model-resolver"


class Step:
    """A call of Copy's executor, as the launcher makes it."""

    def __init__(self, folder, monkeypatch, scheme="minio"):
        monkeypatch.setenv("STAGECRAFT_LAUNCHER_ROOT", str(folder))
        root = "bucket/base/tiny/run"
        copies = folder / {"gs": "gcs"}.get(scheme, scheme) / root
        (copies / "Make/salt/model").mkdir(parents=True)
        (copies / "Make/salt/model/file").write_text("content")
        self.output_file = copies / "Copy/salt/output_metadata.json"
        self.report = copies / "Copy/salt/report"
        model = {
            "name": "7",
            "uri": f"{scheme}://{root}/Make/salt/model",
            "type": {"instanceSchema": ""},
            "metadata": {"steps": 30.0},
        }
        report = f"{scheme}://{root}/Copy/salt/report"
        self.input = executor_input(
            self.output_file,
            {"times": 3.0},
            {"model": model},
            {
                "report": artifact(report, "tiny_nodes.Report", name="report"),
                "executor-logs": {
                    "uri": f"{scheme}://{root}/log",
                    "type": {"schemaTitle": "system.Artifact"},
                },
            },
        )
        self.spec = {
            "parameters": {"times": {"parameterType": "NUMBER_INTEGER"}},
            "artifacts": {"model": {"artifactType": {"instanceSchema": schema("tfx.Model")}}},
        }

    def by_tfx(self):
        del self.input["outputs"]["artifacts"]["executor-logs"]  # which is a reason by itself
        flags = stock_entrypoint._parse_flags(
            [
                "program",
                *("--executor_class_path", "tiny_nodes.CopyExecutor"),
                *("--json_serialized_invocation_args", json.dumps(self.input)),
                *("--json_serialized_inputs_spec_args", json.dumps(self.spec)),
            ]
        )
        stock_entrypoint.main(flags)

    def by_us(self):
        invocation = Invocation(json.dumps(self.input), json.dumps(self.spec), ["report"])
        run(invocation, "minio://bucket/base/tiny", "tiny_nodes.CopyExecutor", {}, [])
        return json.loads(self.output_file.read_text())


@pytest.fixture
def step(tmp_path, monkeypatch):
    return Step(tmp_path, monkeypatch)


def test_4_inputs_come_without_their_types(step):
    with pytest.raises(AttributeError):
        step.by_tfx()
    [report] = step.by_us()["artifacts"]["report"]["artifacts"]
    assert json.loads(report["metadata"]["told"]) == {"type": "Report", "steps": 30, "times": 3}


@pytest.mark.parametrize("scheme", ["gs", "minio", "s3"])
def test_5_addresses_are_those_of_the_object_store(tmp_path, monkeypatch, scheme):
    step = Step(tmp_path, monkeypatch, scheme)
    [model] = step.input["inputs"]["artifacts"]["model"]["artifacts"]
    model["type"] = {"schemaTitle": "tfx.Model"}
    if scheme != "gs":  # TensorFlow would ask Google
        with pytest.raises(Exception, match="not implemented"):
            step.by_tfx()
    [report] = step.by_us()["artifacts"]["report"]["artifacts"]
    assert (step.report / "file").read_text() == "CONTENT"
    assert report["uri"] == f"{scheme}://bucket/base/tiny/run/Copy/salt/report"
    assert report["metadata"]["was_at"] == f"{scheme}://bucket/base/tiny/run/Make/salt/model"


def test_6_hooks_are_not_read(folder, stock, ours):
    container = stock["deploymentSpec"]["executors"]["CsvExampleGen_executor"]["container"]
    assert "preCacheCheck" in container["lifecycle"]
    assert "lifecycle-ignored" in rules(folder / "stock.yaml")
    assert "lifecycle" not in ours["deploymentSpec"]["executors"]["CsvExampleGen_executor"]
    tasks = ours["root"]["dag"]["tasks"]
    assert "cachingOptions" not in tasks["CsvExampleGen-inputs"]
    assert tasks["CsvExampleGen"]["cachingOptions"] == {"enableCache": True}
    source = tasks["CsvExampleGen"]["inputs"]["parameters"]["driver_output"]
    assert source["taskOutputParameter"]["producerTask"] == "CsvExampleGen-inputs"


def test_7_defaults_of_runtime_parameters(folder, stock, ours):
    given = stock["root"]["inputDefinitions"]["parameters"]["train_args"]
    assert given == {"parameterType": "STRING"}
    kept = ours["root"]["inputDefinitions"]["parameters"]["train_args"]
    assert json.loads(kept["defaultValue"])["num_steps"] == 30


def test_8_values_of_other_steps(tmp_path):
    def producer(spec):
        source = spec["root"]["dag"]["tasks"]["Copy"]["inputs"]["parameters"]["times"]
        return str(source["taskOutputParameter"]["producerTask"])

    assert producer(compiled_by.stock(tiny_nodes.pipeline(), tmp_path)) == "Make_task"
    findings = linter.check((tmp_path / "stock.yaml").read_text())
    (found,) = (finding for finding in findings if finding.rule == "unknown-producer")
    assert found.remedy.startswith("Write 'Make'")
    spec = compiled_by.ours(tiny_nodes.pipeline(), tmp_path)["pipelineSpec"]
    assert producer(spec) == "Make"
    # A number stays one: of a STRING the backend would make a text.
    kinds = spec["components"]["Copy"]["inputDefinitions"]["parameters"]
    assert kinds["times"] == {"parameterType": "NUMBER_INTEGER"}


def test_9_resources(tmp_path):
    resources = pipeline_spec_pb2.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec(
        cpu_limit=2.0, memory_limit=4.0
    )

    def asked():
        pipeline = compiled_by.points()
        pipeline.components[0].platform_config = resources
        assert pipeline.components[0].id == "CsvExampleGen"
        return pipeline

    def container(spec, name="CsvExampleGen"):
        return spec["deploymentSpec"]["executors"][f"{name}_executor"]["container"]

    assert "resources" not in container(compiled_by.stock(asked(), tmp_path))
    compiled = compiled_by.ours(
        asked(), tmp_path, steps={"Trainer": {"node_selector": {"gpu": "a100"}, "gpus": 2}}
    )
    spec = compiled["pipelineSpec"]
    assert container(spec)["resources"] == {"cpuLimit": 2, "memoryLimit": 4}
    assert container(spec, "Trainer")["resources"]["accelerator"]["count"] == "2"
    pods = compiled_by.pods(compiled)
    assert pods["Trainer_executor"]["nodeSelector"] == {"labels": {"gpu": "a100"}}


def test_10_artifact_types_of_ones_own(tmp_path, monkeypatch):
    spec = compiled_by.ours(tiny_nodes.pipeline(), tmp_path)["pipelineSpec"]
    outputs = spec["components"]["Copy"]["outputDefinitions"]["artifacts"]
    schema = yaml.safe_load(outputs["report"]["artifactType"]["instanceSchema"])
    assert schema["title"] == "tiny_nodes.Report"

    monkeypatch.setattr(tiny_nodes.Report, "TYPE_NAME", "Report")
    with pytest.raises(ValueError, match="Report"):
        compiled_by.stock(tiny_nodes.pipeline(), tmp_path)
    with pytest.raises(UserError, match=r"tiny_nodes\.Report"):
        compiled_by.ours(tiny_nodes.pipeline(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words", "saved"),
    [
        ("tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor", [], False),
        (
            "stagecraft.pipeline.kubeflow.entrypoint",
            ["run", "--task", "Slow", "--pipeline_folder", "minio://b/p"],
            True,
        ),
    ],
    ids=["stock", "ours"],
)
def test_11_a_signal(tmp_path, module, words, saved):
    """Argo signals the step's process group, and kills it a little later."""
    given = executor_input(tmp_path / "output_metadata.json", {"folder": str(tmp_path)})
    spec = {"parameters": {"folder": {"parameterType": "STRING"}}}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", module, *words),
            *("--executor_class_path", "tiny_nodes.SlowExecutor"),
            *("--json_serialized_invocation_args", json.dumps(given)),
            *("--json_serialized_inputs_spec_args", json.dumps(spec)),
        ],
        env=os.environ | {"PYTHONPATH": str(HERE)},
        start_new_session=True,
    )
    try:
        while not (tmp_path / "began").exists():
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(20) == (143 if saved else -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "saved").exists() == saved


def test_12_the_sdk_takes_what_the_backend_refuses(folder, stock):
    from kfp import components

    components.load_component_from_file(str(folder / "stock.yaml"))
    assert len(rules(folder / "stock.yaml")) >= 5
