"""``stagecraft compile`` and ``stagecraft emulate``, as far as nothing has to run."""

import json

import pytest
import two_steps
import yaml
from click.testing import CliRunner

from stagecraft.pipeline.cli.main import main
from stagecraft.pipeline.kubeflow.linter import check

TINY = two_steps.pipeline()


def command(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_compile_writes_what_the_backend_takes(tmp_path):
    done = command("compile", "-o", tmp_path / "my.yaml", "--set", "name=my", "--data", "download")
    assert done.exit_code == 0, done.output
    assert f"written        {tmp_path / 'my.yaml'}" in done.output
    text = (tmp_path / "my.yaml").read_text()
    assert check(text) == []
    inputs = next(yaml.safe_load_all(text))["root"]["inputDefinitions"]["parameters"]
    assert inputs["data_source"]["defaultValue"] == "download"
    assert inputs["train_epochs"]["description"]


def test_the_sample_has_classes_of_its_own(tmp_path):
    """A run of it cannot be given other data: its schema is compiled in."""
    assert command("compile", "-o", tmp_path / "my.yaml").exit_code == 0
    inputs = next(yaml.safe_load_all((tmp_path / "my.yaml").read_text()))["root"][
        "inputDefinitions"
    ]
    assert "data_source" not in inputs["parameters"]


def test_secrets_are_where_a_step_needs_them_and_nowhere_else(tmp_path):
    file = tmp_path / "my.yaml"
    settings = (
        "kubeflow.every_step.env={HF_TOKEN: c4n4ry-1, PLAIN: c4n4ry-2}",
        "kubeflow.steps.Trainer.env.PROXY=http://me:c4n4ry-3@proxy:1",
        "beam.args=[--s3_secret_access_key=c4n4ry-4]",
        "beam.unchecked_args=[--other=c4n4ry-5]",
    )
    done = command("compile", "-o", file, *(f"--set={setting}" for setting in settings))
    assert done.exit_code == 0, done.output
    assert "c4n4ry" not in done.output
    assert f"Warning: {file} " in done.stderr
    for name in ("every_step.env.HF_TOKEN", "Trainer.env.PROXY", "--s3_secret_access_key"):
        assert name in done.stderr
    assert "PLAIN" not in done.stderr and "--other" not in done.stderr

    spec = yaml.safe_load(file.read_text().partition("\n---\n")[0])
    executors = spec["deploymentSpec"]["executors"]
    for executor in executors.values():
        container = executor["container"]
        container.pop("env")
        container["args"] = [arg for arg in container["args"] if not arg.startswith("--s3_sec")]
        container["args"] = [arg for arg in container["args"] if not arg.startswith("--other")]
    assert "c4n4ry" not in yaml.safe_dump(spec)


@pytest.mark.slow
def test_compile_does_not_write_over_the_settings(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\n")
    done = command("compile", "--config", mine, "-o", mine)
    assert done.exit_code == 1
    assert str(mine) in done.stderr
    assert mine.read_text() == "name: mine\n"
    assert command("compile", "--config", mine, "-o", tmp_path / "out.yaml").exit_code == 0
    assert command("compile", "--config", mine, "-o", tmp_path / "out.yaml").exit_code == 0


@pytest.mark.parametrize(
    "setting",
    [
        "kubeflow.pipeline_root=/data",
        "kubeflow.steps.Trainr.gpus=1",
        "parallel={strategy: mirrored, replicas: 2}",
    ],
)
def test_compile_errors(tmp_path, setting):
    done = command("compile", "-o", tmp_path / "my.yaml", "--set", setting)
    assert (done.exit_code, done.stdout) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_emulate_tells_of_each_step_and_sums_up(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    done = command("emulate", tmp_path / "tiny.yaml", "-o", tmp_path / "out", "-p", "word=a")
    assert done.exit_code == 0, done.stderr
    assert "say: done" in done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["pushed"], summary["blessed"]) == (None, None)
    assert {name: step["state"] for name, step in summary["steps"].items()} == {
        "say": "done",
        "after": "done",
    }
    log = tmp_path / "out" / "runs" / summary["run_id"] / "say.log"
    assert log.read_text() == "said\n"


def test_emulate_shows_the_log_of_what_failed(tmp_path):
    failing = json.loads(json.dumps(TINY))
    container = failing["deploymentSpec"]["executors"]["exec-say"]["container"]
    container["command"] = ["python", "-c", "print('why it failed'); raise SystemExit(7)"]
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(failing))
    done = command("emulate", tmp_path / "tiny.yaml", "-o", tmp_path / "out", "-p", "word=a")
    assert done.exit_code == 1
    assert "why it failed" in done.stderr
    assert "say: " in done.stderr and "exit code 7" in done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["steps"]["say"]["cause"] in done.stderr
    assert summary["steps"]["after"] == {"state": "skipped"}


@pytest.mark.parametrize(
    "words",
    [(), ("-p", "word"), ("-p", "word=a", "-p", "other=1")],
    ids=["none", "no =", "unknown"],
)
def test_emulate_checks_parameters(tmp_path, words):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    done = command("emulate", tmp_path / "tiny.yaml", "-o", tmp_path / "out", *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert not (tmp_path / "out").exists()


def test_emulate_needs_a_compiled_pipeline(tmp_path):
    done = command("emulate", tmp_path / "none.yaml", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"] in done.stderr
    assert "none.yaml: " in done.stderr
