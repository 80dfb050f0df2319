"""``kubeflow_v2_runner.py``: what it writes for Kubeflow, and what for Vertex AI."""

import json
import os
import pathlib
import runpy
import sys

import click
import pytest
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from processes import ran
from tfx.tools.cli.cli_context import Context

from stagecraft.contrib import tfx_command
from stagecraft.pipeline import configs
from stagecraft.pipeline.kubeflow import compile, linter
from stagecraft.pipeline.settings import load

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNER = ROOT / "kubeflow_v2_runner.py"
IMAGE = "europe-docker.pkg.dev/project/repository/stagecraft@sha256:" + "0" * 64
PLACES = (f"kubeflow.image={IMAGE}", "kubeflow.pipeline_root=gs://bucket/stagecraft")


def run_file(monkeypatch, folder, *overrides):
    """As ``python kubeflow_v2_runner.py`` does, in ``folder``."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(configs, "SETTINGS", load("quickstart", overrides))
    runpy.run_path(str(RUNNER), run_name="__main__")


@pytest.fixture
def compile_vertex(tmp_path, monkeypatch):
    """Compiles as below ``tfx pipeline compile --engine=vertex``; the PipelineJob."""

    def compiled(*overrides):
        given = Context()
        given.flags_dict["engine"] = "vertex"
        with click.Context(click.Command("compile"), obj=given):
            run_file(monkeypatch, tmp_path, *PLACES, *overrides)
        return json.loads((tmp_path / "pipeline.json").read_text())

    return compiled


def container(job, step):
    return job["pipelineSpec"]["deploymentSpec"]["executors"][f"{step}_executor"]["container"]


def test_by_hand_it_writes_what_stagecraft_compile_writes(tmp_path, monkeypatch):
    run_file(monkeypatch, tmp_path)
    text = (tmp_path / "quickstart.yaml").read_text()
    assert not linter.check(text)
    compile.compile_pipeline(load("quickstart"), tmp_path / "other.yaml")
    assert text == (tmp_path / "other.yaml").read_text()


def test_it_writes_over_nothing_but_compiled_pipelines(tmp_path, monkeypatch):
    (tmp_path / "quickstart.yaml").write_text("name: quickstart\n")
    with pytest.raises(SystemExit, match="quickstart.yaml exists"):
        run_file(monkeypatch, tmp_path)
    assert (tmp_path / "quickstart.yaml").read_text() == "name: quickstart\n"


def test_the_engine_is_the_running_commands():
    given = Context()
    given.flags_dict["engine"] = "vertex"
    group = click.Context(click.Command("tfx"), obj=given)
    with click.Context(click.Command("compile"), parent=group):
        assert tfx_command.engine() == "vertex"


def test_without_a_command_of_tfx_there_is_no_engine():
    assert tfx_command.engine() is None
    with click.Context(click.Command("something else")):
        assert tfx_command.engine() is None


def test_the_vertex_job(compile_vertex):
    job = compile_vertex()
    spec = job["pipelineSpec"]
    assert spec["schemaVersion"] == "2.0.0"
    assert job["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/stagecraft"
    assert job["runtimeConfig"]["parameters"]["train_batch_size"] == {"intValue": "64"}
    assert set(job["runtimeConfig"]["parameters"]) == set(
        spec["root"]["inputDefinitions"]["parameters"]
    )
    # TFX's entrypoint does not find the types of its outputs.
    assert "Pusher" in spec["components"] and "TrainingReport" not in spec["components"]
    # Unknown fields would be refused.
    json_format.ParseDict(job, pipeline_spec_pb2.PipelineJob())
    json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    json_format.ParseDict(spec["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
    containers = {
        name: executor["container"]
        for name, executor in spec["deploymentSpec"]["executors"].items()
        if "container" in executor
    }
    assert len(containers) == 8
    for given in containers.values():
        assert given["image"] == IMAGE
        assert given["command"] == [
            "python",
            "-m",
            "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
        ]
        assert "resources" not in given
    titles = {
        definition["artifactType"]["instanceSchema"].splitlines()[0].removeprefix("title: ")
        for component in spec["components"].values()
        for definition in component.get("outputDefinitions", {}).get("artifacts", {}).values()
    }
    assert titles <= {
        f"tfx.{name}"
        for name in (
            *("Examples", "ExampleStatistics", "ExampleAnomalies", "Schema", "TransformGraph"),
            *("TransformCache", "Model", "ModelRun", "ModelEvaluation", "ModelBlessing"),
            "PushedModel",
        )
    }


@pytest.mark.slow  # to import it
def test_vertex_s_client_takes_the_job(compile_vertex, tmp_path):
    aiplatform = pytest.importorskip("google.cloud.aiplatform")
    from google.auth.credentials import AnonymousCredentials

    compile_vertex()
    job = aiplatform.PipelineJob(
        display_name="quickstart",
        template_path=str(tmp_path / "pipeline.json"),
        parameter_values={"train_steps": "5"},  # as tfx run create hands it over
        project="project",
        location="europe-west4",
        credentials=AnonymousCredentials(),
    )
    config = job.to_dict()["runtimeConfig"]
    assert config["gcsOutputDirectory"] == "gs://bucket/stagecraft"
    assert config["parameters"]["train_steps"] == {"intValue": "5"}


def test_a_step_gets_what_vertex_can_give(compile_vertex):
    job = compile_vertex(
        "kubeflow.every_step.env={LEVEL: info}",
        "kubeflow.steps={Trainer: {gpus: 2, gpu_resource: NVIDIA_TESLA_A100, cpu: 24, "
        "memory: 170G, image: other@sha256:1, retries: 2}}",
        "parallel={strategy: mirrored, replicas: 2}",
    )
    trainer = container(job, "Trainer")
    assert trainer["image"] == "other@sha256:1"
    assert trainer["env"] == [{"name": "LEVEL", "value": "info"}]
    assert trainer["resources"] == {
        "cpuLimit": 24.0,
        "memoryLimit": 170.0,
        "accelerator": {"type": "NVIDIA_TESLA_A100", "count": "2"},
    }
    assert container(job, "Transform")["image"] == IMAGE
    tasks = job["pipelineSpec"]["root"]["dag"]["tasks"]
    assert tasks["Trainer"]["retryPolicy"]["maxRetryCount"] == 2
    json_format.ParseDict(job["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())


def test_what_vertex_does_not_run_is_replaced(compile_vertex):
    job = compile_vertex()
    assert container(job, "Cifar10ExampleGen")["lifecycle"]["preCacheCheck"] == {
        "command": ["python", "-m", "stagecraft.contrib.vertex.driver"],
        "args": [
            "--driver_class_path",
            "stagecraft.components.example_gen.driver.Driver",
            "--json_serialized_invocation_args",
            "{{$}}",
        ],
    }
    tasks = job["pipelineSpec"]["root"]["dag"]["tasks"]
    assert tasks["Evaluator"]["inputs"]["artifacts"]["baseline_model"] == {
        "taskOutputArtifact": {
            "producerTask": "Baseline-model-resolver",
            "outputArtifactKey": "model",
        }
    }
    assert "inputs" not in tasks["Baseline-model-blessing-resolver"]  # before the training


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("kubeflow.pipeline_root=s3://bucket/x", "kubeflow.pipeline_root"),
        ("kubeflow.pipeline_root=minio://bucket/x", "kubeflow.pipeline_root"),
        ("push.directory=/mnt/serving", "push.directory"),
        ("kubeflow.checkpoints=gs://bucket/c", "kubeflow.checkpoints"),
        ("data.source=/data/cifar", "data.source"),
        ("train.initial_weights=last_pushed", "train.initial_weights"),
        (
            "kubeflow.every_step={volumes: [{claim: data, path: /data}]}",
            "kubeflow.every_step.volumes",
        ),
        (
            "kubeflow.steps={Pusher: {secrets: [{name: a, key: b, env: C}]}}",
            "kubeflow.steps.Pusher.secrets",
        ),
        ("kubeflow.every_step.node_selector={a: b}", "kubeflow.every_step.node_selector"),
        ("kubeflow.every_step.tolerations=[{key: a}]", "kubeflow.every_step.tolerations"),
        ("kubeflow.steps.Trainer.shared_memory=8Gi", "kubeflow.steps.Trainer.shared_memory"),
        ("kubeflow.steps.Trainer.timeout_seconds=60", "kubeflow.steps.Trainer.timeout_seconds"),
        ("kubeflow.every_step.image_pull_policy=Always", "kubeflow.every_step.image_pull_policy"),
        ("kubeflow.steps.Trainer.gpus=1", "kubeflow.every_step.gpu_resource"),
        ("kubeflow.every_step.env={EMPTY: ''}", "kubeflow.every_step.env"),
        ("kubeflow.steps.Nobody.gpus=1", "kubeflow.steps"),
        ("parallel={strategy: mirrored, replicas: 2}", "kubeflow.steps.Trainer.gpus"),
    ],
)
def test_settings_without_support_on_vertex(compile_vertex, tmp_path, override, setting):
    with pytest.raises(SystemExit) as refused:
        compile_vertex(override)
    assert str(refused.value).startswith(f"Error: {setting}: ")
    assert not (tmp_path / "pipeline.json").exists()


def stock_command(folder, *overrides, code=0):
    """Creates the pipeline for Vertex AI where the command keeps it, from another folder."""
    bin_folder = pathlib.Path(sys.executable).parent
    variables = {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",  # it runs pip
        "VERTEX_HOME": str(folder / "home"),
        "STAGECRAFT_SET": " ".join([*PLACES, *overrides]),
    }
    words = ("pipeline", "create", "--engine=vertex", f"--pipeline-path={RUNNER}")
    return ran(bin_folder / "tfx", *words, code=code, cwd=folder, variables=variables)


@pytest.mark.slow
def test_the_stock_command(tmp_path):
    created = stock_command(tmp_path)
    assert 'Pipeline "quickstart" created successfully.' in created.stdout
    job = json.loads((tmp_path / "home" / "quickstart" / "pipeline.json").read_text())
    assert job["pipelineSpec"]["schemaVersion"] == "2.0.0"
    assert container(job, "Trainer")["image"] == IMAGE
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.full  # in this process: test_settings_without_support_on_vertex
def test_the_stock_command_is_refused_gpus_that_vertex_does_not_know(tmp_path):
    refused = stock_command(tmp_path, "kubeflow.steps.Trainer.gpus=1", code=1)
    assert refused.stderr.splitlines()[-1].startswith("Error: kubeflow.every_step.gpu_resource:")
    assert not [*tmp_path.glob("home/*/*")]
