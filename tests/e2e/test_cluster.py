"""The whole pipeline on Kubeflow, whose Trainer starts a job of the cluster: both emulated."""

import json
import os
import subprocess

import pytest
import yaml
from job_controllers import controllers
from kube_api import kube_api
from support import STAGECRAFT

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("trainjob", marks=pytest.mark.full),
        pytest.param("job", marks=pytest.mark.full),
        pytest.param("tfjob", marks=pytest.mark.full),
    ],
)
def test_two_workers(tmp_path, kind):
    volume = tmp_path / "volume"
    volume.mkdir()
    settings = {
        "name": "tiny",
        "data": {"sample_train": 400, "sample_test": 100, "shards": 2},
        "train": {"steps": 6, "batch_size": 32},
        "evaluate": {"better_than_constant": False},
        "parallel": {
            "strategy": "multi_worker_mirrored",
            "workers": 2,
            "launcher": "kubernetes",
        },
        "parity": {"enabled": kind == "job", "steps": 4},
        "kubeflow": {
            "checkpoints": str(volume / "checkpoints"),
            "job": {"kind": kind, "folder": str(volume / "jobs")},
            "steps": {"Trainer": {"volumes": [{"claim": "training", "path": str(volume)}]}},
        },
    }
    (tmp_path / "tiny-settings.yaml").write_text(yaml.safe_dump(settings))
    compiled = tmp_path / "tiny.yaml"
    subprocess.run(
        [STAGECRAFT, "compile", "--config", tmp_path / "tiny-settings.yaml", "-o", compiled],
        check=True,
    )
    with kube_api() as server, controllers(server) as cluster:
        environment = {
            **os.environ,
            "KUBECONFIG": str(server.kubeconfig(tmp_path / "kubeconfig")),
            "STAGECRAFT_NAMESPACE": server.namespace,
        }
        done = subprocess.run(
            [STAGECRAFT, "emulate", compiled, "--output", tmp_path / "out"],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        assert len(cluster.pods) == 2 and not cluster.running()
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {step["state"] for step in summary["steps"].values()} == {"done"}
    assert summary["blessed"] and summary["pushed"]
    [log] = (tmp_path / "out" / "runs").glob("*/Trainer.log")
    assert "worker 0: " in log.read_text() and "worker 1: " in log.read_text()
    assert list((volume / "jobs").iterdir()) == []
