import json
import logging
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.models.layers import own_layers
from stagecraft.trainer_module.planning import measure
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.training import record

KERNEL = "whitening/kernel"


@pytest.mark.slow
def test_a_model_adapts_to_the_train_split_and_is_exported_so(make_fn_args, transform, tmp_path):
    fn_args = make_fn_args(tmp_path, train_model="airbench_2_2_2", train_steps=1)
    run_fn(fn_args)
    images = np.asarray(input_data.first(fn_args.train_files, transform, 24).inputs)
    expected = own_layers.kernel(own_layers.covariance(images, 2), (2, 2, 3, 24))
    state = Checkpoints(tmp_path / "checkpoints").load(1).state
    np.testing.assert_array_equal(state[f"model/{KERNEL}"], expected.astype(np.float32))

    folder = pathlib.Path(fn_args.serving_model_dir)
    paths = json.loads((folder / "assets.extra" / "variable_paths.json").read_text())
    exported = tf.saved_model.load(str(folder)).model_variables[paths.index(KERNEL)]
    np.testing.assert_array_equal(exported, expected.astype(np.float32))


@pytest.mark.slow
def test_a_chosen_precision_is_told_recorded_and_kept(make_fn_args, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(measure, "native_bfloat16", lambda device: (True, "a test"))
    monkeypatch.setattr(measure, "pass_seconds", lambda models, **_: [2.0, 1.0])
    fn_args = make_fn_args(tmp_path, parallel_precision="auto", train_steps=2)
    caplog.set_level(logging.INFO, "stagecraft.progress")
    run_fn(fn_args)
    (told,) = (e.progress for e in caplog.records if "precision" in getattr(e, "progress", {}))
    notes = record.read(fn_args.model_run_dir)
    assert told == {
        "phase": "precision",
        "precision": "mixed_bfloat16",
        "reason": notes["precision"]["reason"],
    }
    assert notes["settings"]["parallel_precision"] == "mixed_bfloat16"
    assert notes["precision"]["float32_seconds"] == 2.0
    assert json.dumps(told)

    # On another machine, which has none: the finished training is not repeated.
    monkeypatch.setattr(measure, "native_bfloat16", lambda device: (False, "another test"))
    run_fn(fn_args)
    notes = record.read(fn_args.model_run_dir)
    assert notes["precision"]["precision"] == "mixed_bfloat16"
    assert notes["precision"]["float32_seconds"] is None
    assert notes["resumed_from"] == notes["steps"] == 2


def test_a_constant_that_does_not_fit_is_refused_before_the_training(make_fn_args, tmp_path):
    fn_args = make_fn_args(tmp_path, task_name="views_tasks:TWO_CLASSES")
    with pytest.raises(SettingError) as caught:
        run_fn(fn_args)
    assert (caught.value.setting, caught.value.value) == ("task.name", "two_classes")
    assert not list(tmp_path.glob("checkpoints/*/*"))
