"""A training continues another one: optimizer, averages and the count of steps go on."""

import pathlib
from typing import Any

import numpy as np
import pytest

from stagecraft.trainer_module.checkpointing import checkpoint_files
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.models.initial_weights import source
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.training import record


def _train(make_fn_args: Any, folder: pathlib.Path, **settings: Any) -> Any:
    constant = {"train_schedule": "constant", "train_eval_every": 3}
    fn_args = make_fn_args(folder, **constant, **settings)
    fn_args.custom_config[source.TRAINING_STATE] = True
    run_fn(fn_args)
    return fn_args


def _state(fn_args: Any) -> pathlib.Path:
    """The folder with the state of the exported step, the only one that was evaluated."""
    return pathlib.Path(fn_args.serving_model_dir).parent / source.TRAINING_STATE / "3"


@pytest.mark.slow
def test_it_equals_a_training_that_never_stopped(make_fn_args, tmp_path):
    """Also with an order, augmentations and averages: the passes over the data are counted on."""
    whole = _train(make_fn_args, tmp_path / "whole", train_steps=6)
    first = _train(make_fn_args, tmp_path / "first", train_steps=3)  # one pass over 24 examples
    kept = _state(first)
    warm = {"train_initial_weights": str(kept), "train_warm_start": '{"optimizer_state": true}'}
    second = _train(make_fn_args, tmp_path / "second", train_steps=3, **warm)

    expected, found = (
        Checkpoints(each.working_dir).load(step).state for each, step in ((whole, 6), (second, 3))
    )
    assert expected.keys() == found.keys()
    assert any(name.startswith("ema/") for name in found)
    for name in expected.keys() - {"step"}:
        np.testing.assert_array_equal(found[name], expected[name], name)
    notes = record.read(second.model_run_dir)
    assert notes["steps"] == 3 and notes["initial_weights"]["file"] == str(kept)
    state = checkpoint_files.read(_state(second)).state
    assert state["step"] == 6  # of both trainings, for a third one

    with pytest.raises(source.InitialWeightsError) as caught:
        _train(make_fn_args, tmp_path / "third", train_optimizer="sgd", **warm)
    assert caught.value.path == str(kept)
