"""The Trainer with all its inputs and outputs at addresses that Python's own files do not reach.

TensorFlow's ``ram://`` stands for ``gs://``: neither is a folder.
"""

import pathlib

import pytest
import tensorflow as tf
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import io_utils

from stagecraft.components.trainer.component import RUN_FN
from stagecraft.components.trainer.executor import Executor, on_disk
from stagecraft.trainer_module.settings import TrainingSettings

MODELS = pathlib.Path(__file__).resolve().parents[2] / "trainer_module"


def artifact(kind: type[types.Artifact], uri: str) -> types.Artifact:
    made = kind()
    made.uri = uri
    return made


def test_trains_from_addresses_to_addresses(training_data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(MODELS))
    monkeypatch.chdir(tmp_path)
    root = f"ram://{tmp_path}"
    for name in ("examples", "transform_graph", "schema"):
        io_utils.copy_dir(str(getattr(training_data, name)), f"{root}/{name}")
    examples = artifact(standard_artifacts.Examples, f"{root}/examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
    inputs = {
        "examples": [examples],
        "transform_graph": [artifact(standard_artifacts.TransformGraph, f"{root}/transform_graph")],
        "schema": [artifact(standard_artifacts.Schema, f"{root}/schema")],
    }
    model = artifact(standard_artifacts.Model, f"{root}/model")
    outputs = {
        "model": [model],
        "model_run": [artifact(standard_artifacts.ModelRun, f"{root}/model_run")],
    }
    train = {"model": "user_models:tiny", "batch_size": 8, "eval_batch_size": 5, "steps": 2}
    Executor().Do(
        inputs,
        outputs,
        {
            **TrainingSettings.model_validate({"train": train}).flat(),
            "run_fn": RUN_FN,
            "checkpoint_root": "checkpoints",
            "code_fingerprint": "0123456789abcdef",
        },
    )
    assert model.uri == f"{root}/model"
    assert model.get_int_custom_property("steps") == 2
    assert fileio.exists(f"{root}/model_run/record.json")
    loaded = tf.saved_model.load(f"{root}/model/Format-Serving")
    assert "serving_images" in loaded.signatures
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_failed_training_leaves_no_output(tmp_path):
    model = artifact(standard_artifacts.Model, f"ram://{tmp_path}/failed")
    with pytest.raises(InterruptedError), on_disk({"model": [model]}):
        pathlib.Path(model.uri, "half").write_text("")
        raise InterruptedError
    assert model.uri == f"ram://{tmp_path}/failed"
    assert not fileio.exists(model.uri)
