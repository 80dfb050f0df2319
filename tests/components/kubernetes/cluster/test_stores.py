"""A training whose pods share no volume: data, orders, checkpoints and model go by a store."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.job_folder import exchange, heartbeat
from stagecraft.components.object_store import folder, leases
from stagecraft.components.object_store.folder import StoredFolder
from stagecraft.trainer_module.checkpointing import mirror
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.lease import LeaseHeldError, LeaseLostError
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.processes.training_task import TrainingTask

IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2}


def names(stored: Any, below: str) -> list[str]:
    return StoredFolder(stored.checkpoints.replace("checkpoints", below)).names()


@pytest.mark.slow
def test_the_model_comes_back(stored, cluster):
    """And what trainings have left that nobody tries again is gone."""
    jobs = stored.checkpoints.replace("checkpoints", "jobs")
    for name, seconds in (("train-0123456789abcdef", -4000.0), ("train-fedcba9876543210", 1.0)):
        heartbeat.renew(f"{jobs}/{name}", seconds)
    StoredFolder(f"{jobs}/train-0123456789abcdef/inputs").write("file", b"")
    stored.run(IN_STEP, run_fn="stub_training.done")
    assert names(stored, "jobs") == ["train-fedcba9876543210/lease.json"]
    assert (pathlib.Path(stored.model.uri) / "Format-Serving" / "model").read_text() == "weights"
    assert stored.model.get_int_custom_property("steps") == 4
    assert len(cluster.pods) == 2
    # Another training on the same checkpoints, in another namespace.
    [name] = [name for name in names(stored, "checkpoints") if name.endswith(heartbeat.NAME)]
    key = f"{stored.checkpoints}/{name.partition('/')[0]}"
    other = leases.open_lease(key, name="train-other", seconds=60.0, grace=0.0)
    other.claim()  # it may begin at once
    with pytest.raises(LeaseHeldError) as refused:
        stored.run(IN_STEP, run_fn="stub_training.done")
    assert refused.value.holder == other.holder
    assert len(cluster.pods) == 2
    assert cluster.leases() == []


@pytest.mark.slow
def test_what_pods_are_told(stored, cluster):
    """A task that names no folder of the step's, and inputs whole."""
    with pytest.raises(UserError):
        stored.run(IN_STEP, run_fn="stub_training.refuses")
    there = names(stored, "jobs")
    [task] = [name for name in there if name.endswith("/task.json")]
    jobs = StoredFolder(stored.checkpoints.replace("checkpoints", "jobs"))
    told = TrainingTask.parsed(jobs.read(task).decode()).arguments
    assert told.train_files[0].startswith("staged://inputs/examples-0/")
    assert told.working_dir.startswith(stored.checkpoints)
    given = pathlib.Path(stored.inputs["schema"][0].uri)
    job = task.partition("/")[0]
    for path in filter(pathlib.Path.is_file, given.rglob("*")):
        assert f"{job}/inputs/schema-0/{path.relative_to(given)}" in there


@pytest.mark.full
def test_parameter_servers_and_an_evaluator(stored, cluster):
    """The evaluator brings checkpoints, and sends what it has found."""
    parallel = {"strategy": "parameter_server", "workers": 1, "ps": 1, "evaluator": True}
    stored.run(parallel, {"checkpoint_every": 2})
    assert stored.model.get_float_custom_property("val_accuracy") >= 0
    [found] = [name for name in names(stored, "checkpoints") if name.endswith("evaluations.json")]
    entries = json.loads(StoredFolder(stored.checkpoints).read(found))
    assert [entry["step"] for entry in entries][-1] == 4


def test_a_store_that_does_not_answer(stored, server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setattr(folder, "_PAUSES", ())
    with pytest.raises(UserError, match=r"encoding\-type"):
        stored.run(IN_STEP)
    assert server.requests == []


def test_a_bucket_that_is_not_there(stored, step, server):
    one = step(folder="s3://no-such-bucket/jobs")
    one.checkpoints = stored.checkpoints
    with pytest.raises(UserError, match=r"kubeflow\.checkpoints"):
        one.run(IN_STEP)
    assert server.requests == []


POD = """
import sys
from stagecraft.components.object_store import folder
from stagecraft.components.kubernetes import worker
folder._PAUSES = ()
sys.exit(worker.main(sys.argv[1]))
"""


@pytest.mark.full
def test_a_pod_that_does_not_reach_the_store(stored):
    """Its controller starts it again: a store may come back."""
    folder = stored.checkpoints.replace("checkpoints", "jobs/train-1")
    heartbeat.renew(folder, 60.0)
    environment = os.environ | {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}
    command = [sys.executable, "-c", POD, folder]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == exit_codes.LOST_PEER
    assert ended.stdout.startswith(f"{folder}/lease.json: the object store at http://127.0.0.1:9")
    assert "Set AWS_ACCESS_KEY_ID" in ended.stdout and len(ended.stdout.splitlines()) == 1


def test_a_chief_whose_step_has_lost_the_lease(stored, tmp_path):
    """It sends no checkpoint, though nobody has told it yet."""
    address = f"{stored.checkpoints}/key"
    step = leases.open_lease(address, name="train-1", seconds=0.0, grace=60.0)
    step.claim()
    mirror.use(tmp_path, StoredFolder(address), exchange._check_lease(address, "train-1"))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"step": np.int64(1)}, {}, best_step=1)
        checkpoints.flush()
        other = leases.open_lease(address, name="train-2", seconds=60.0, grace=0.0)
        other.claim(lambda found: True)
        checkpoints.save(2, {"step": np.int64(2)}, {}, best_step=2)
        with pytest.raises(LeaseLostError, match=r"train-2 \(process") as lost:
            checkpoints.flush()
    assert lost.value.holder == other.holder
    there = {name.partition("/")[0] for name in names(stored, "checkpoints/key")}
    assert there == {"1", heartbeat.NAME}


@pytest.mark.full
def test_a_store_without_conditional_writes(old_bucket, stored, cluster, caplog):
    """The cluster keeps the lease, and a warning names the trainings that it does not see."""
    stored.run(IN_STEP, run_fn="stub_training.done")
    assert stored.model.get_int_custom_property("steps") == 4
    [said] = [each.message for each in caplog.records if "supports no leases" in each.message]
    assert f"{stored.checkpoints}/" in said and "namespace kubeflow" in said
    assert [name for name in names(stored, "checkpoints") if name.endswith(heartbeat.NAME)] == []
