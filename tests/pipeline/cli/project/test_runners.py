"""The runners of a written project compile it, also from another folder."""

import json
import os
import subprocess
import sys

import pytest
import yaml


@pytest.fixture
def run(programs, tmp_path):
    """Runs a program in a folder beside the project ``trips``."""
    (tmp_path / "elsewhere").mkdir()
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("STAGECRAFT_")
    }
    variables |= {"FORK_SERVER": str(programs / "socket"), "HOME": str(tmp_path)}
    scripts = os.path.dirname(sys.executable)  # TFX runs pip to look for kfp
    variables["PATH"] = os.pathsep.join([str(programs), scripts, variables["PATH"]])

    def run(*words):
        done = subprocess.run(
            [programs / words[0], *words[1:]],
            cwd=tmp_path / "elsewhere",
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


@pytest.mark.slow
def test_a_project_compiles_for_every_engine(run, tmp_path):
    run("stagecraft", "init", "../trips", "--template=taxi")
    elsewhere = tmp_path / "elsewhere"
    run("python", "../trips/kubeflow_v2_runner.py")
    (by_hand,) = elsewhere.iterdir()
    specs = [*yaml.safe_load_all(by_hand.read_text())]
    parameters = specs[0]["root"]["inputDefinitions"]["parameters"]
    assert {"data_source", "train_epochs", "train_learning_rate"} <= set(parameters)

    by_hand.unlink()
    kubeflow = "--pipeline-path=../trips/kubeflow_v2_runner.py"
    run("stagecraft", "tfx", "pipeline", "compile", "--engine=kubeflow", kubeflow)
    assert [*yaml.safe_load_all((elsewhere / "trips.yaml").read_text())] == specs

    # Vertex AI's store. It refuses that of Kubeflow Pipelines, as "stagecraft compile" does.
    settings = tmp_path / "trips" / "settings.yaml"
    settings.write_text(settings.read_text().replace("minio://mlpipeline/", "gs://bucket/"))
    run("stagecraft", "tfx", "pipeline", "compile", "--engine=vertex", kubeflow)
    job = json.loads((elsewhere / "pipeline.json").read_text())
    assert job["pipelineSpec"]["pipelineInfo"]["name"] == "trips"

    local = "--pipeline-path=../trips/local_runner.py"
    said = run("stagecraft", "tfx", "pipeline", "create", "--engine=local", local)
    assert 'Pipeline "trips" created successfully.' in said
    assert not [*(tmp_path / "trips").glob("runs/*/pipeline_root")]  # nothing ran
