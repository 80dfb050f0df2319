"""The page on the Tuner: its files compile for Kubeflow, its search gives the Trainer values."""

import json
import runpy
import sys

import pytest
from reading import ROOT, Reader
from snippets import snippets

from stagecraft.pipeline.kubeflow import document
from stagecraft.trainer_module.training import record

PAGE = ROOT / "docs" / "how-to" / "tune.md"


def test_it_compiles(tmp_path, monkeypatch):
    for found in snippets(PAGE.read_text()):
        if found.title:
            (tmp_path / found.title).write_text(found.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path(str(tmp_path / "tuned_kubeflow.py"))
    monkeypatch.delitem(sys.modules, "tuned")
    tasks = document.load(tmp_path / "pipeline.yaml").spec["root"]["dag"]["tasks"]
    (given,) = tasks["Trainer"]["inputs"]["artifacts"]["hyperparameters"].values()
    assert given == {"outputArtifactKey": "best_hyperparameters", "producerTask": "Tuner"}


@pytest.mark.full
def test_the_trainer_trains_the_best(reader: Reader):
    reader.read(PAGE)
    root = reader.folder / "tuned" / "root"
    (found,) = root.rglob("best_hyperparameters.txt")
    best = json.loads(found.read_text())["values"]
    (results,) = root.rglob("tuner_results.json")
    trials = json.loads(results.read_text())
    (run,) = root.glob("Trainer/model_run/*")
    notes = record.read(run)
    for name, value in best.items():
        assert notes["settings"][name.replace(".", "_")] == pytest.approx(value), name
    assert notes["best"]["accuracy"] == pytest.approx(max(trial["score"] for trial in trials))
