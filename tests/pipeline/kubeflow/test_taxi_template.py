"""TFX's taxi template, with all its components, as our runner compiles it."""

from __future__ import annotations

import importlib
import pathlib
import shutil
import sys

import compiled_by
import pytest
import tfx
from tfx.proto import trainer_pb2

from stagecraft.pipeline.kubeflow import document

TFX = pathlib.Path(tfx.__file__).parent
DATA = TFX / "examples" / "chicago_taxi_pipeline" / "data" / "simple" / "data.csv"
ROOT = "minio://mlpipeline/taxi"
PACKAGES = ("models", "pipeline")


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The template's packages, its steps 5 and 6 done, importable here and in steps."""
    folder = tmp_path / "taxi"
    for name in PACKAGES:
        template = TFX / "experimental" / "templates" / "taxi" / name
        shutil.copytree(template, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "pipeline" / "pipeline.py"
    text = file.read_text().replace("# components.append(", "components.append(")
    file.write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        monkeypatch.delitem(sys.modules, name)
    return folder


@pytest.mark.full
def test_it_runs_as_compiled(project: pathlib.Path, tmp_path: pathlib.Path) -> None:
    taxi = importlib.import_module("pipeline.pipeline").create_pipeline(
        "taxi",
        ROOT,
        data_path="minio://mlpipeline/data",
        preprocessing_fn="models.preprocessing.preprocessing_fn",
        run_fn="models.keras_model.model.run_fn",
        train_args=trainer_pb2.TrainArgs(num_steps=100),
        eval_args=trainer_pb2.EvalArgs(num_steps=10),
        eval_accuracy_threshold=0.3,
        serving_model_dir=f"{ROOT}/serving",
    )
    compiled_by.ours(taxi, tmp_path)
    data = tmp_path / "store" / "minio" / "mlpipeline" / "data"
    data.mkdir(parents=True)
    shutil.copy(DATA, data)
    states = compiled_by.emulated(tmp_path)
    steps = document.load(tmp_path / "ours.yaml").order()
    assert states == dict.fromkeys(steps, "done") and "Pusher" in steps
    [pushed] = (tmp_path / "store" / "minio" / "mlpipeline" / "taxi" / "serving").iterdir()
    assert (pushed / "saved_model.pb").exists()
