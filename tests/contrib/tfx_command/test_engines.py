"""Which engine ``auto`` is."""

import pathlib

import pytest
import tfx.experimental.templates
from tfx_project import HEAD, LOCAL, OURS

from stagecraft.contrib.tfx_command import engines

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEMPLATES = pathlib.Path(next(iter(tfx.experimental.templates.__path__)))


def imported(path, text):
    path.write_text(text)
    return engines.imported_engines(path)


@pytest.mark.parametrize(
    ("file", "engine"),
    [
        (TEMPLATES / "taxi" / "local_runner.py", "local"),
        (TEMPLATES / "taxi" / "kubeflow_v2_runner.py", "kubeflow"),
        (TEMPLATES / "penguin" / "local_runner.py", "local"),
        (TEMPLATES / "penguin" / "kubeflow_runner.py", "kubeflow"),
        (ROOT / "local_runner.py", "local"),
        (ROOT / "kubeflow_v2_runner.py", "kubeflow"),
    ],
)
def test_files_of_templates_and_ours(file, engine):
    assert file.exists()
    assert engines.imported_engines(file) == {engine}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from tfx import v1 as tfx\ntfx.orchestration.LocalDagRunner()", "local"),
        ("from tfx.orchestration.local.local_dag_runner import LocalDagRunner as L", "local"),
        ("from tfx.orchestration.local import local_dag_runner as r", "local"),
        ("import tfx.orchestration.local.local_dag_runner", "local"),
        ("from tfx.orchestration import experimental as e\ne.KubeflowV2DagRunner(c)", "kubeflow"),
        ("from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner", "kubeflow"),
        ("from stagecraft.pipeline.kubeflow.runner import KubeflowRunner", "kubeflow"),
        ("from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner", "beam"),
        ("from tfx.orchestration.airflow.airflow_dag_runner import AirflowDagRunner", "airflow"),
        # What is no runner.
        ("import threading\nthreading.local()\nfrom apache_beam.runners import direct", ""),
        ('"""For the LocalDagRunner."""  # or KubeflowV2DagRunner', ""),
        ("from . import sibling", ""),
        ("this is no Python", ""),
        ("\0", ""),
        (HEAD + OURS + LOCAL, "kubeflow local"),
    ],
)
def test_ways_to_import(tmp_path, text, expected):
    assert imported(tmp_path / "runner.py", text) == set(expected.split())


def test_a_file_that_is_not_there(tmp_path):
    assert engines.imported_engines(tmp_path / "missing.py") == set()


@pytest.mark.parametrize(
    ("file", "engine"), [("local.py", "Local"), ("ours.py", "Kubeflow"), ("plain.py", "Kubeflow")]
)
def test_auto_is_the_file_s_engine(project, file, engine):
    done = project.tfx("pipeline", "compile", f"--pipeline-path={project.folder / file}")
    assert done.exit_code == 0, done.output
    assert f"Detected {engine}.\nUse --engine flag" in done.stdout
    assert "Pipeline compiled successfully." in done.stdout


def test_an_endpoint_is_kubeflow_s(project):
    file = project.file("both.py", OURS + LOCAL)
    done = project.tfx("pipeline", "list", f"--endpoint={project.server.url}")
    assert (done.exit_code, "Detected Kubeflow." in done.stdout) == (0, True)
    # It runs both, and ours is the one that is asked for: the other is not hindered.
    assert engines.detect({"endpoint": project.server.url, "pipeline_dsl_path": str(file)}) == (
        "kubeflow"
    )


def test_both_is_for_the_user_to_say(project):
    file = project.file("both.py", OURS + LOCAL)
    done = project.tfx("pipeline", "compile", f"--pipeline-path={file}")
    assert done.exit_code == 1
    said = done.output.splitlines()[-1]
    assert said.startswith(f"{file} ") and "kubeflow and local" in said


def test_a_name_alone(project, set_context, monkeypatch):
    assert engines.detect({"pipeline_name": "tiny"}) == "local"
    set_context(endpoint=project.server.url)
    assert engines.detect({"pipeline_name": "tiny"}) == "kubeflow"
    assert engines.detect({}) == "kubeflow"
    (project.home / "tfx" / "local" / "tiny").mkdir(parents=True)
    assert engines.detect({"pipeline_name": "tiny"}) == "local"
    assert engines.detect({"pipeline_name": "other"}) == "kubeflow"
    monkeypatch.setenv("LOCAL_HOME", str(project.folder))
    assert engines.detect({"pipeline_name": "tiny"}) == "kubeflow"


@pytest.mark.parametrize("name", ["KF_PIPELINES_ENDPOINT", "STAGECRAFT_KUBEFLOW_CONTEXT"])
def test_what_the_environment_knows(project, set_context, monkeypatch, name):
    from stagecraft.pipeline.kubeflow.client import contexts

    mine = contexts.Context(endpoint=project.server.url)
    contexts.save(contexts.Contexts(contexts={"mine": mine}))
    assert engines.detect({"pipeline_name": "tiny"}) == "local"
    value = {"KF_PIPELINES_ENDPOINT": project.server.url}.get(name, "mine")
    monkeypatch.setenv(name, value)
    assert engines.detect({"pipeline_name": "tiny"}) == "kubeflow"


def test_contexts_that_cannot_be_read(project, monkeypatch):
    file = project.folder / "contexts.yaml"
    file.write_text("contexts: [")
    monkeypatch.setenv("STAGECRAFT_CONTEXTS", str(file))
    done = project.tfx("pipeline", "list")
    assert isinstance(done.exception, SystemExit)
    assert f"{file}, line 1: not YAML" in done.output
