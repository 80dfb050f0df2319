"""The Trainer with all its inputs and outputs at addresses that Python's own files do not reach.

TensorFlow's ``ram://`` stands for ``gs://``: neither is a folder.
"""

import pathlib

import pytest
import tensorflow as tf
from artifacts import OUTPUTS, artifact, artifacts, training_inputs, training_properties
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts
from tfx.utils import io_utils

from stagecraft.components.trainer.executor import Executor, on_disk

MODELS = pathlib.Path(__file__).resolve().parents[2] / "trainer_module"


@pytest.mark.slow
def test_trains_from_addresses_to_addresses(training_data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(MODELS))
    monkeypatch.chdir(tmp_path)
    root = f"ram://{tmp_path}"
    for name in ("examples", "transform_graph", "schema"):
        io_utils.copy_dir(str(getattr(training_data, name)), f"{root}/{name}")
    outputs = artifacts(OUTPUTS, root)
    [model] = outputs["model"]
    train = {"model": "user_models:tiny", "batch_size": 8, "eval_batch_size": 5, "steps": 2}
    properties = training_properties({"train": train}, "checkpoints")
    Executor().Do(training_inputs(root), outputs, properties)
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
