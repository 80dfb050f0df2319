"""TFX's taxi template with its own Trainer: a few lines in its run_fn give it a topology."""

from __future__ import annotations

import pathlib
import sys

import pytest
from processes import ran
from reading import ROOT
from snippets import snippets

from stagecraft.trainer_module.training import record

PAGE = ROOT / "docs" / "how-to" / "own-trainer.md"


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    """The template as ``tfx template copy`` writes it, its steps 5 and 6 done."""
    words = ["template", "copy", "--model=taxi", "--pipeline-name=taxi"]
    tfx = pathlib.Path(sys.executable).with_name("tfx")
    ran(tfx, *words, f"--destination-path={tmp_path}", cwd=tmp_path)
    for name, before, after in (
        ("pipeline", "# components.append(", "components.append("),
        ("configs", "TRAIN_NUM_STEPS = 1000", "TRAIN_NUM_STEPS = 100"),
    ):
        file = tmp_path / "pipeline" / f"{name}.py"
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))
    return tmp_path


def run(project: pathlib.Path, title: str) -> None:
    """Runs the template with the run_fn of a snippet, to a model that the Evaluator blesses."""
    file = project / "models" / "keras_model" / "model.py"
    before, line, _ = file.read_text().partition("\ndef run_fn(fn_args):\n")
    assert line
    (run_fn,) = (each.text for each in snippets(PAGE.read_text()) if each.title == title)
    file.write_text(f"{before}\n{run_fn}")
    ran(sys.executable, "local_runner.py", cwd=project)
    (model,) = project.rglob("serving_model/*/saved_model.pb")
    assert model.exists()


@pytest.mark.full
@pytest.mark.slow
def test_keras_own_fit(project: pathlib.Path) -> None:
    run(project, "with_fit.py")
    assert [*project.rglob("Trainer/model_run/*/train/events*")]


@pytest.mark.full
@pytest.mark.slow
def test_three_lines(project: pathlib.Path) -> None:
    run(project, "model.py")
    (folder,) = project.rglob("Trainer/model_run/*")
    notes = record.read(folder)
    assert (notes["steps"], notes["topology"]["stages"]) == (100, 2)
    assert len(notes["topology"]["devices"]) == 4
    assert notes["best"]["binary_accuracy"] > 0.5
    tests = ["-o", "python_files=*_test.py", "-p", "no:cacheprovider", "-c", "/dev/null"]
    ran(sys.executable, "-m", "pytest", "-q", *tests, "--rootdir", ".", "models", cwd=project)
