"""``stagecraft doctor``, for this machine and for a cluster."""

import json
import pathlib
import urllib.error

import pytest
from kube_api import kube_api

from stagecraft.pipeline.checks import machine
from stagecraft.pipeline.settings.kubeflow import DEFAULT_IMAGE

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
def server(tmp_path, monkeypatch):
    with kube_api() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        api.add("namespaces", "kubeflow")
        spec, status = {"accessModes": ["ReadWriteMany"]}, {"phase": "Bound"}
        api.add("persistentvolumeclaims", "training", spec=spec, status=status)
        api.add("networkpolicies", "nobody", spec={"podSelector": {}})
        yield api


def test_a_cluster_that_has_everything(stagecraft, server):
    ran = stagecraft("doctor", "--cluster", *SETTINGS, "--service-account=pipeline-runner")
    assert (ran.code, ran.stderr) == (0, "")
    *lines, _ = ran.stdout.splitlines()
    assert all(line.startswith("ok ") for line in lines)


def test_a_cluster_that_has_not(stagecraft, server):
    server.forbid("create", "tfjobs.kubeflow.org")
    given = (*SETTINGS, "--set=kubeflow.job.kind=tfjob", f"--set=kubeflow.image={DEFAULT_IMAGE}")
    ran = stagecraft("doctor", "--cluster", "--json", *given)
    assert ran.code == 1
    found = json.loads(ran.stdout)
    missing = {name for name, row in found["checks"].items() if row["verdict"] == "missing"}
    assert found["ok"] is False and missing == {"kind", "tfjobs"}
    assert found["checks"]["image"]["verdict"] == "note"
    ran = stagecraft("doctor", "--cluster", *given)
    assert ran.code == 1
    (kind,) = (line for line in ran.stdout.splitlines() if line.startswith("missing kind "))
    assert "tfjobs.kubeflow.org/v1" in kind


@pytest.mark.parametrize(("scheme", "verdict"), [("minio", "ok"), ("s3", "note")])
def test_a_folder_in_an_object_store(stagecraft, server, scheme, verdict):
    """The pods get the keys of Kubeflow's own store, as in a compiled pipeline."""
    settings = [each for each in SETTINGS if "folder" not in each and "checkpoints" not in each]
    folders = (
        f"--set=kubeflow.{name}={scheme}://mlpipeline/a" for name in ("job.folder", "checkpoints")
    )
    ran = stagecraft("doctor", "--cluster", "--json", *settings, *folders)
    checks = ran.last_line["checks"]
    assert (checks["folder"]["verdict"], checks["checkpoints"]["verdict"]) == (verdict, verdict)


def test_the_defaults_say_what_to_set(stagecraft, server):
    ran = stagecraft("doctor", "--cluster")
    assert ran.code == 1
    for setting in ("parallel.launcher=kubernetes", "kubeflow.image", "steps.Trainer.volumes"):
        assert setting in ran.stdout


def test_errors_are_one_sentence(stagecraft, server, tmp_path, monkeypatch):
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


def test_options_need_their_kind_of_check(stagecraft):
    for given, wanted in (
        ("--set=train.epochs=1", "--cluster or --beam"),
        ("--namespace=team", "--cluster"),
        ("--service-account=runner", "--cluster"),
        ("--output=runs/a", "--beam"),
    ):
        ran = stagecraft("doctor", given)
        assert ran.code == 2 and f"{given.partition('=')[0]} needs {wanted}." in ran.stderr
    ran = stagecraft("doctor", "--beam", "--namespace=team")
    assert ran.code == 2 and "--namespace needs --cluster." in ran.stderr
    ran = stagecraft("doctor", "--beam", "--cluster")
    assert ran.code == 2 and "separate checks" in ran.stderr


def test_beam_in_the_process_of_the_pipeline(stagecraft):
    ran = stagecraft("doctor", "--beam")
    assert ran.code == 0
    runner, _ = ran.stdout.splitlines()
    assert runner.startswith("ok ")


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(machine.urllib.request, "urlopen", refuse)
    found = machine.Check("devices", "CPU:0")
    monkeypatch.setattr(machine, "devices", lambda: found)


@pytest.mark.usefixtures("offline")
def test_no_network_is_a_note(stagecraft):
    result = stagecraft("doctor", "--json")
    assert result.code == 0
    found = result.last_line
    assert found["ok"] is True
    assert found["checks"]["network"]["verdict"] == "note"
    assert "--data PATH" in found["checks"]["network"]["advice"]
    assert found["checks"]["stack"]["found"].startswith("tfx 1.")


@pytest.mark.usefixtures("offline")
def test_people_get_lines_and_advice(stagecraft):
    lines = stagecraft("doctor").stdout.splitlines()
    assert [line for line in lines if line.startswith("note    network")]


@pytest.mark.usefixtures("offline")
def test_a_missing_package_fails_it(stagecraft, monkeypatch):
    monkeypatch.setattr(machine, "_NEEDED", ("tfx", "no-such-package"))
    result = stagecraft("doctor")
    assert result.code == 1
    assert "not installed: no-such-package; run `make setup`" in result.stdout


def test_a_tensorflow_that_does_not_start_is_missing(monkeypatch):
    reason = "libx.so: not found"
    monkeypatch.setattr(machine, "_DEVICES", f"raise ImportError({reason!r})")
    assert machine.devices().verdict == "missing"
    assert reason in machine.devices().found
    monkeypatch.setattr(machine, "_DEVICES", "print('devices: CPU:0, GPU:0')")
    assert machine.devices() == machine.Check("devices", "CPU:0, GPU:0")


def test_little_memory_and_disk_are_notes(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_available_bytes", lambda: 1e9)
    assert machine.memory().verdict == "note"
    usage = type(machine.shutil.disk_usage(tmp_path))(10, 9, 1)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: usage)
    assert machine.disk(pathlib.Path(tmp_path)).verdict == "note"
