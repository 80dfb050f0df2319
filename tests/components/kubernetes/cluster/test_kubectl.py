"""What people do with kubectl, the real one: render and apply, look on, delete."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from stagecraft.common.errors import UserError

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden" / "jobs"

Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(server: Any, tmp_path: pathlib.Path) -> Kubectl:
    server.users[""] = "kubectl"
    environment = os.environ | {"HOME": str(tmp_path)}  # where it keeps what it has discovered

    def run(*arguments: object) -> str:
        done = subprocess.run(
            ["kubectl", *map(str, arguments)], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("kind", ["job", "tfjob", "trainjob"])
def test_objects_are_applied(server, kubectl, kind):
    server.install("kubeflow.org/v1", "tfjobs", "TFJob")
    server.install("trainer.kubeflow.org/v1alpha1", "trainjobs", "TrainJob")
    file = GOLDEN / f"{kind}-in-step.yaml"
    assert "created" in kubectl("apply", "--validate=false", "-f", file)
    assert kubectl("get", kind, "training-1", "-o", "jsonpath={.metadata.labels}") == (
        '{"app.kubernetes.io/part-of":"stagecraft","stagecraft.dev/job":"training-1"}'
    )
    assert "deleted" in kubectl("delete", "-f", file)
    assert kubectl("get", kind, "-o", "name") == ""


def test_a_training_is_looked_at_and_deleted(step, cluster, kubectl, aside):
    one = step()
    parallel = {"strategy": "multi_worker_mirrored", "workers": 2}
    running = aside(one.run, parallel, run_fn="stub_training.hangs")
    cluster.wait_for(
        lambda: sum("hangs" in line for pod in cluster.running() for line in pod.lines) == 2
    )
    name = one.job_folder.name
    label = f"stagecraft.dev/job={name}"
    assert len(kubectl("get", "pods", "-l", label, "-o", "name").splitlines()) == 2
    logs = kubectl("logs", "-l", label, "--prefix")
    assert "worker 0 hangs" in logs and "worker 1 hangs" in logs
    kubectl("delete", "job", name)
    with pytest.raises(UserError, match="someone"):
        running.result()
    cluster.wait_for(lambda: not cluster.running())
