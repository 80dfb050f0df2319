"""The command line of a run, as messages show it."""

import pathlib
import shlex

from stagecraft.pipeline.cli.terminal.command_line import run_command


def test_what_is_not_the_default():
    assert run_command() == "stagecraft run"
    said = run_command(
        config="cifar10",
        data="my pictures.tar.gz",
        overrides=("train.steps=9", "train.augment=[flip, crop]"),
        output=pathlib.Path("runs/a b"),
        runner="beam",
        from_node="Trainer",
        to_node="Pusher",
        fresh=True,
    )
    assert shlex.split(said) == [
        "stagecraft", "run", "--config", "cifar10", "--data", "my pictures.tar.gz",
        "--output", "runs/a b", "--set", "train.steps=9", "--set", "train.augment=[flip, crop]",
        "--runner", "beam", "--fresh", "--from", "Trainer", "--to", "Pusher",
    ]  # fmt: skip


def test_what_may_be_a_secret_is_not_shown():
    said = run_command(
        overrides=(
            "kubeflow.every_step.env={TOKEN: hunter2}",
            'beam.args=["--password=hunter2"]',
            "kubeflow={every_step: {env: {TOKEN: hunter2}}}",
            "train.steps=3",
        )
    )
    assert "hunter2" not in said
    assert "kubeflow.every_step.env=…" in said and "beam.args=…" in said
    assert "train.steps=3" in said
