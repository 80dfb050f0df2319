"""``stagecraft doctor --cluster``."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from kube_api import KubeApi, kube_api

SETTINGS = (
    "--set=parallel.strategy=multi_worker_mirrored",
    "--set=parallel.workers=2",
    "--set=parallel.launcher=kubernetes",
    "--set=kubeflow.image=registry.example.com/stagecraft@sha256:0123",
    "--set=kubeflow.checkpoints=/mnt/training/checkpoints",
    "--set=kubeflow.job.folder=/mnt/training/jobs",
    "--set=kubeflow.steps.Trainer.volumes=[{claim: training, path: /mnt/training}]",
)


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    with kube_api() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        api.add("namespaces", "kubeflow")
        spec, status = {"accessModes": ["ReadWriteMany"]}, {"phase": "Bound"}
        api.add("persistentvolumeclaims", "training", spec=spec, status=status)
        yield api


def test_a_cluster_that_has_everything(stagecraft: Any, server: KubeApi) -> None:
    ran = stagecraft("doctor", "--cluster", *SETTINGS, "--service-account=pipeline-runner")
    assert (ran.code, ran.stderr) == (0, "")
    *lines, last = ran.stdout.splitlines()
    assert last == "everything that a training needs is there"
    assert lines[0] == "ok      launcher    parallel.launcher: kubernetes"
    assert all(line.startswith("ok ") for line in lines)


def test_a_cluster_that_has_not(stagecraft: Any, server: KubeApi) -> None:
    server.forbid("create", "tfjobs.kubeflow.org")
    given = (*SETTINGS, "--set=kubeflow.job.kind=tfjob", "--set=kubeflow.image=stagecraft:latest")
    ran = stagecraft("doctor", "--cluster", "--json", *given)
    assert ran.code == 1
    found = json.loads(ran.stdout)
    missing = {name for name, row in found["checks"].items() if row["verdict"] == "missing"}
    assert found["ok"] is False and missing == {"kind", "image", "tfjobs"}
    ran = stagecraft("doctor", "--cluster", *given)
    assert ran.code == 1 and "missing kind        no tfjobs.kubeflow.org/v1" in ran.stdout


def test_the_defaults_say_what_to_set(stagecraft: Any, server: KubeApi) -> None:
    ran = stagecraft("doctor", "--cluster")
    assert ran.code == 1
    for setting in (
        "parallel.launcher=kubernetes",
        "kubeflow.image",
        "kubeflow.steps.Trainer.volu",
    ):
        assert setting in ran.stdout


def test_errors_are_one_sentence(
    stagecraft: Any, server: KubeApi, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, said in (
        (("--set=kubeflow.job.kind=ray",), "kubeflow.job.kind"),
        (("--namespace=A",), "namespace: 'A'"),
        (("--kube-context=none",), "No Kubernetes cluster"),
    ):
        ran = stagecraft("doctor", "--cluster", *given)
        assert (ran.code, ran.stdout) == (1, "") and said in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
    server.users.clear()
    ran = stagecraft("doctor", "--cluster", "--json", *SETTINGS)
    assert ran.code == 1 and "Unauthorized" in ran.last_line["error"]


def test_options_of_a_cluster_need_one(stagecraft: Any) -> None:
    for given in ("--set=train.epochs=1", "--namespace=team", "--service-account=runner"):
        ran = stagecraft("doctor", given)
        assert ran.code == 2 and f"{given.partition('=')[0]} goes with --cluster" in ran.stderr
