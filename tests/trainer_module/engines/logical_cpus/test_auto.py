"""``parallel.strategy: auto`` trains what it chooses."""

import pytest

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.training import record


@pytest.mark.full
@pytest.mark.parametrize("kept", [{}, {"stages": 2}, {"replicas": 2, "stages": 2}], ids=str)
def test_the_choice_trains_and_is_in_the_record(make_fn_args, tmp_path, kept):
    given = {f"parallel_{name}": value for name, value in kept.items()}
    fn_args = make_fn_args(
        tmp_path,
        parallel_strategy="auto",
        parallel_virtual_devices=4,
        train_model="user_models:tiny",
        **given,
    )
    run_fn(fn_args)
    notes = record.read(fn_args.model_run_dir)
    chosen = notes["search"]["candidates"][0]["settings"]
    assert chosen["replicas"] * chosen["stages"] == len(notes["topology"]["devices"]) > 1
    assert {name: chosen[name] for name in kept} == kept
    settings = notes["settings"]
    assert {name: settings[f"parallel_{name}"] for name in chosen} == chosen
    assert settings["parallel_strategy"] != "auto"
    checkpoints = Checkpoints(fn_args.working_dir, writes=False)
    stored = checkpoints.notes(checkpoints.steps()[-1])["settings"]
    assert {name: stored[f"parallel_{name}"] for name in chosen} == chosen

    # Again, with more steps: the topology is that of the checkpoint.
    fn_args.custom_config["settings"] |= {"train_steps": 8, "train_schedule": "constant"}
    fn_args.custom_config["settings"] |= {"train_resume_id": "longer"}
    run_fn(fn_args)
    assert record.read(fn_args.model_run_dir)["topology"] == notes["topology"]
