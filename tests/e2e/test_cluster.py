"""The whole pipeline on Kubeflow, whose Trainer starts a job of the cluster: both emulated."""

import json

import pytest
import yaml
from job_controllers import controllers
from kube_api import kube_api
from processes import ran
from support import STAGECRAFT

pytestmark = pytest.mark.timeout(900)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["trainjob", "job", "tfjob"])
def test_two_workers(tmp_path, kind):
    volume = tmp_path / "volume"
    volume.mkdir()
    settings = {
        "name": "tiny",
        "data": {"sample_train": 400, "sample_test": 100, "shards": 2},
        "train": {"steps": 6, "batch_size": 32},
        "evaluate": {"better_than_constant": False},
        "parallel": {"strategy": "multi_worker_mirrored", "workers": 2, "launcher": "kubernetes"},
        "parity": {"enabled": kind == "job", "steps": 4},
        "kubeflow": {
            "checkpoints": str(volume / "checkpoints"),
            "job": {"kind": kind, "folder": str(volume / "jobs")},
            "steps": {"Trainer": {"volumes": [{"claim": "training", "path": str(volume)}]}},
        },
    }
    config, compiled = tmp_path / "tiny-settings.yaml", tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(settings))
    ran(STAGECRAFT, "compile", "--config", config, "-o", compiled)
    with kube_api() as server, controllers(server) as cluster:
        variables = {
            "KUBECONFIG": str(server.kubeconfig(tmp_path / "kubeconfig")),
            "STAGECRAFT_NAMESPACE": server.namespace,
        }
        words = ("emulate", compiled, "--output", tmp_path / "out")
        done = ran(STAGECRAFT, *words, variables=variables)
        assert len(cluster.pods) == 2 and not cluster.running()
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {step["state"] for step in summary["steps"].values()} == {"done"}
    assert summary["blessed"] and summary["pushed"]
    [log] = (tmp_path / "out" / "runs").glob("*/Trainer.log")
    assert "worker 0: " in log.read_text() and "worker 1: " in log.read_text()
    assert list((volume / "jobs").iterdir()) == []
