"""The pipeline trains and pushes a model on this machine, and compiles for Kubeflow."""

import kubeflow_v2_runner
import tensorflow as tf
import yaml
from pipeline import configs
from pipeline.pipeline import create_pipeline
from stagecraft.pipeline import LocalRunner, check_model, load_settings

# Six steps train no good model. So the test accepts any model.
SHORT = (
    "train.steps=6",
    "train.batch_size=16",
    "evaluate.thresholds={}",
    "evaluate.min_accuracy=0",
    "evaluate.better_than_constant=false",
)


def test_a_short_run_pushes_a_model(tmp_path):
    with configs.in_project():
        settings = load_settings("settings.yaml", SHORT)
        LocalRunner().run(create_pipeline(settings, str(tmp_path)))
    (version,) = (tmp_path / "serving").iterdir()
    assert "serving_default" in tf.saved_model.load(str(version)).signatures


def test_it_compiles_for_kubeflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kubeflow_v2_runner.main()
    spec = next(yaml.safe_load_all((tmp_path / f"{configs.PIPELINE_NAME}.yaml").read_text()))
    assert spec["pipelineInfo"]["name"] == configs.PIPELINE_NAME
    assert "Trainer" in {task["taskInfo"]["name"] for task in spec["root"]["dag"]["tasks"].values()}


def test_the_model_has_two_stages():
    """Stages are parts of the model on different devices: see ``parallel:`` in settings.yaml."""
    topology = ("strategy=grid", "stages=2", "virtual_devices=2")
    with configs.in_project():
        check_model(load_settings("settings.yaml", [f"parallel.{each}" for each in topology]))
