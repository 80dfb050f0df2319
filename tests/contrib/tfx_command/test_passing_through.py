"""What is TFX's alone is passed through as it is."""

import os

import pytest


def test_templates(project):
    listed = project.tfx("template", "list")
    assert listed.exit_code == 0
    assert "- penguin\n" in listed.output and "- taxi\n" in listed.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pipelines", "list"), "No such command 'pipelines'"),
        (("pipeline", "remove"), "No such command 'remove'"),
        (("pipeline", "list", "--nothing"), "No such option"),
        (("pipeline", "create"), "Missing option '--pipeline_path'"),
        (("--nothing",), "No such option"),
    ],
)
def test_words_that_tfx_has_not(project, words, message):
    done = project.tfx(*words)
    assert done.exit_code == 2
    assert "Usage: stagecraft tfx " in done.output and message in done.output


@pytest.mark.parametrize("words", [("--help",), ("run", "create", "--help")])
def test_help_is_tfx_s(project, words):
    shown = project.tfx(*words)
    assert shown.exit_code == 0
    assert shown.output.startswith("Usage: stagecraft tfx ") or "CLI\nUsage: " in shown.output


@pytest.mark.parametrize("path", [None, "", os.defpath])
def test_pip_is_found(project, monkeypatch, path):
    """TFX runs it by its name."""
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    listed = project.tfx("pipeline", "list", "--engine=local")
    assert listed.exit_code == 0, listed.output
    assert "No pipelines to" in listed.stdout
    assert "" not in os.environ["PATH"].split(os.pathsep)  # which is the present folder


@pytest.mark.parametrize("given", [None, "0"])
def test_a_run_s_log_is_not_silenced(project, monkeypatch, given):
    """Processes of a local run inherit this one's environment."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    project.tfx("template", "list")
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == given
