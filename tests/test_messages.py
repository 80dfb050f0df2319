"""The twenty errors that users meet most, word by word.

Other tests assert the fields of an error. Its sentence says what is wrong, why, and what works.
"""

from __future__ import annotations

import pytest

from stagecraft.common.errors import UserError
from stagecraft.pipeline import settings
from stagecraft.pipeline.checks import preflight
from stagecraft.trainer_module.parallel import cluster, topology
from stagecraft.trainer_module.settings import ParallelSettings


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["train.stps=5"],
            "--set train.stps=5: train: unknown setting 'stps'; did you mean 'steps'?",
        ),
        (["trian.steps=5"], "--set trian.steps=5: unknown setting 'trian'; did you mean 'train'?"),
        (["train.steps=0"], "--set train.steps=0: train.steps: expected 1 or more (given: 0)"),
        (
            ["train.batch_size=many"],
            "--set train.batch_size=many: train.batch_size: expected an integer (given: 'many')",
        ),
        (
            ["train.optimizer=adams"],
            "--set train.optimizer=adams: train.optimizer: adams does not exist; use adam",
        ),
        (
            ["train.model=rsenet20"],
            "--set train.model=rsenet20: train.model: rsenet20 does not exist; use resnet20",
        ),
        (
            ["train.augment=mixupp"],
            "--set train.augment=mixupp: train.augment: mixupp does not exist; use mixup",
        ),
        (["train=3"], "--set train=3: train: expected a section of names and values (given: 3)"),
        (["train.steps"], "--set train.steps: expected key=value, such as train.steps=500"),
        (
            ["train.steps=5", "train.epochs=2"],
            "--set train.steps=5, --set train.epochs=2: train.steps: 5 and train.epochs: 2 "
            "exclude each other; use one of them",
        ),
        (
            ["data.label=coarse"],
            "--set data.label=coarse: data.label: coarse exists only in cifar100; use "
            "data.dataset: cifar100",
        ),
        (
            ["parallel.strategy=gird"],
            "--set parallel.strategy=gird: parallel.strategy: gird does not exist; use grid",
        ),
        (
            ["parallel.stages=2"],
            "--set parallel.stages=2: parallel.stages: 2 needs parallel.strategy: grid "
            "(one_device keeps the whole model on each device); use parallel.strategy: grid",
        ),
        (
            ["parallel.replicas=2"],
            "--set parallel.replicas=2: parallel.replicas: 2 needs several devices, but "
            "one_device uses only one; use parallel.strategy: mirrored, or parallel.replicas:"
            " 1",
        ),
        (
            ["parallel.strategy=grid", "parallel.stages=3", "parallel.cuts=[add_1]"],
            "--set parallel.cuts=[add_1]: parallel.cuts: 'add_1' makes 2 stages, but "
            "parallel.stages is 3; use parallel.stages: 2, name 2 layers, or use "
            "parallel.cuts: auto",
        ),
        (
            ["parallel.strategy=mirrored", "parallel.replicas=3"],
            "--set parallel.replicas=3: train.batch_size: 64 is not a multiple of "
            "parallel.replicas: 3; use train.batch_size: 63",
        ),
    ],
    ids=str,
)
def test_settings(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        settings.load("quickstart", overrides)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            "parallel.strategy=grid parallel.stages=2 parallel.cuts=nowhere",
            "parallel.cuts: 'nowhere': the model 'cnn' has no such layer; it can be cut after "
            "'block1_conv', 'block1_pool', 'block2_conv', 'block2_pool', 'block3_conv', "
            "'block3_pool', 'flatten', 'dense'",
        ),
        ("data.schema_file=gone", "gone: cannot read the schema: No such file or directory"),
    ],
)
def test_preflight(overrides: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        preflight.check(settings.load("quickstart", overrides.split()))
    assert str(caught.value) == message


def test_workers_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError) as caught:
        cluster.training(ParallelSettings(strategy="multi_worker_mirrored", workers=2))
    assert str(caught.value) == (
        "environment variable TF_CONFIG: unset, but parallel.workers: 2 needs it in each process; "
        'use a value such as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
        '"task": {"type": "worker", "index": 0}} in each process, or parallel.workers: 1'
    )


def test_a_machine_without_gpus() -> None:
    with pytest.raises(UserError) as caught:
        topology.resolve(ParallelSettings(strategy="mirrored", all_reduce="nccl"))
    assert str(caught.value) == (
        "parallel.all_reduce: nccl needs GPUs, but TensorFlow finds none on this machine (CPU:0); "
        "use parallel.all_reduce: auto"
    )
