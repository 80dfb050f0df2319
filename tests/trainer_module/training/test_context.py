import json
import pathlib

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.models.layers import whitening
from stagecraft.trainer_module.run_fn import run_fn

KERNEL = "whitening/kernel"


def test_a_model_adapts_to_the_train_split_and_is_exported_so(make_fn_args, transform, tmp_path):
    fn_args = make_fn_args(tmp_path, train_model="airbench_2_2_2", train_steps=1)
    run_fn(fn_args)
    images = np.asarray(input_data.first(fn_args.train_files, transform, 24).inputs)
    expected = whitening.kernel(whitening.covariance(images, 2), (2, 2, 3, 24))
    state = Checkpoints(tmp_path / "checkpoints").load(1).state
    np.testing.assert_array_equal(state[f"model/{KERNEL}"], expected.astype(np.float32))

    folder = pathlib.Path(fn_args.serving_model_dir)
    paths = json.loads((folder / "assets.extra" / "variable_paths.json").read_text())
    exported = tf.saved_model.load(str(folder)).model_variables[paths.index(KERNEL)]
    np.testing.assert_array_equal(exported, expected.astype(np.float32))
