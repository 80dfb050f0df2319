"""What a cluster does not allow, or cannot do, and what a step has not been given: one sentence."""

import os

import pytest
from kube_api.store import Resource

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.job_folder.exchange import UnsharedFolderError
from stagecraft.components.kubernetes.jobs.cluster_job import JobRefusedError
from stagecraft.components.kubernetes.jobs.settings import CLUSTER, CLUSTER_JOBS
from stagecraft.components.kubernetes.launch.leases import ClusterLease
from stagecraft.components.kubernetes.launch.training_job import MissingKindError
from stagecraft.trainer_module.checkpointing.lease import LeaseHeldError

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVED = {"strategy": "parameter_server", "workers": 1, "ps": 1}
ROLE = "manifests/base/training-access.yaml"


@pytest.mark.parametrize(
    ("verb", "resource"),
    [("create", "jobs.batch"), ("get", "jobs.batch"), ("create", "services"), ("list", "pods")],
)
def test_a_permission_that_is_missing(by_hand, verb, resource):
    by_hand.server.forbid(verb, resource)
    with pytest.raises((Refused, JobRefusedError)) as error:
        by_hand.training().run()
    assert error.value.status == 403
    assert by_hand.jobs() == []
    assert by_hand.clock.now < 60


def test_a_job_that_may_not_be_deleted(by_hand, caplog):
    by_hand.server.forbid("delete", "jobs.batch")
    by_hand.server.forbid("list", "pods")
    with pytest.raises(Refused, match=r"manifests/base/logs\-access\.yaml"):
        by_hand.training().run()
    by_hand.server.allow("list", "pods")
    by_hand.clock.at(20, lambda: by_hand.server.forbid("get", "jobs.batch"))
    with pytest.raises(Refused, match=r"jobs\.batch"):
        by_hand.training().run()
    assert 'cannot delete resource "jobs"' in caplog.text and ROLE in caplog.text
    assert "its pods end" in caplog.text.lower()


def test_logs_that_may_not_be_read(by_hand):
    by_hand.server.forbid("get", "pods/log")
    by_hand.clock.at(10, lambda: [by_hand.add_pod(f"pod-{index}", index) for index in (0, 1)])
    by_hand.run(50)
    [told] = by_hand.printed
    assert 'User "ci@example.com" cannot get resource "pods/log"' in told
    assert "training-access.yaml" in told and told.endswith("The training continues.")


def test_a_quota_of_jobs(by_hand):
    """No role helps."""
    words = 'jobs.batch "train-1" is forbidden: exceeded quota: jobs, used: 4, limited: 4'
    by_hand.server.fail("POST", "/jobs$", 403, "Forbidden", words)
    with pytest.raises(JobRefusedError) as error:
        by_hand.training().run()
    assert str(error.value).endswith(f": {words}.")
    assert by_hand.asked("DELETE") == 0, "there is no job to delete"


def test_a_refused_job_leaves_no_inputs(step, server):
    server.forbid("create", "jobs.batch")
    one = step()
    with pytest.raises(JobRefusedError):
        one.run(IN_STEP)
    assert list((one.volume / "jobs").iterdir()) == []
    assert not any(each.method == "DELETE" and "/jobs" in each.path for each in server.requests)
    assert server.store.list(LEASES, "", lambda lease: True) == []


def test_a_runtime_that_is_missing(by_hand):
    """The words of Kubeflow Trainer's webhook."""
    by_hand.kind = CLUSTER_JOBS.get("trainjob")
    version = f"{by_hand.kind.group}/{by_hand.kind.version}"
    by_hand.server.install(version, "trainjobs", "TrainJob")
    by_hand.objects = [by_hand.objects[-1] | {"kind": "TrainJob", "apiVersion": version}]
    words = (
        'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
        "spec.runtimeRef: Invalid value: "
        'TrainingRuntime.trainer.kubeflow.org "stagecraft" not found'
    )
    by_hand.server.fail("POST", "/trainjobs$", 403, "Forbidden", words)
    with pytest.raises(JobRefusedError) as refused:
        by_hand.training().run()
    assert refused.value.status == 403 and "manifests/trainer-runtime" in str(refused.value)


@pytest.mark.parametrize("kind", ["tfjob", "trainjob"])
def test_a_missing_operator(by_hand, kind):
    entry = by_hand.kind = CLUSTER_JOBS.get(kind)
    version = f"{entry.group}/{entry.version}"
    by_hand.objects = [by_hand.objects[-1] | {"kind": entry.kind, "apiVersion": version}]
    with pytest.raises(MissingKindError) as caught:
        by_hand.training().run()
    assert caught.value.value == kind


@pytest.mark.parametrize("kind", ["job", "trainjob"])
def test_an_old_cluster(step, server, kind):
    server.version |= {"minor": "30+", "gitVersion": "v1.30.4-gke.1"}
    with pytest.raises(SettingError) as caught:
        step(kind).run(SERVED)
    assert (caught.value.setting, caught.value.value) == ("kubeflow.job.kind", kind)
    assert caught.value.suggestion.split(": ") == ["kubeflow.job.kind", "tfjob"]
    assert [request.path for request in server.requests] == ["/version"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_volume_that_cannot_be_written(step, server):
    one = step()
    one.volume.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied") as caught:
        one.run(IN_STEP)
    assert caught.value.setting == "kubeflow.job.folder" and server.requests == []


def test_a_folder_that_is_none(step, server):
    one = step()
    (one.volume / "jobs").write_text("")
    with pytest.raises(UserError, match="Not a directory") as caught:
        one.run(IN_STEP)
    assert caught.value.setting == "kubeflow.job.folder" and server.requests == []


def test_a_full_volume(step, server, monkeypatch):
    def full(path: str, content: bytes) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr("stagecraft.components.object_store.filesystem.write_atomically", full)
    with pytest.raises(UserError, match="No space left") as caught:
        step().run(IN_STEP)
    assert caught.value.setting == "kubeflow.job.folder"
    assert caught.value.file.endswith("lease.json") and server.requests == []


def test_checkpoints_that_are_on_no_volume(step, server):
    one = step()
    one.checkpoints = one.folder / "elsewhere"
    with pytest.raises(UnsharedFolderError) as caught:
        one.run(IN_STEP)
    assert caught.value.setting == "kubeflow.checkpoints"
    assert str(one.volume) in caught.value.suggestion and server.requests == []


@pytest.mark.parametrize("value", ["", "{}", None])
def test_a_step_that_was_not_compiled_for_it(step, monkeypatch, value):
    one = step()
    if value is None:
        monkeypatch.delenv(CLUSTER)
    else:
        monkeypatch.setenv(CLUSTER, value)
    with pytest.raises(UserError) as caught:
        one.run(IN_STEP)
    assert caught.value.record == CLUSTER


def test_no_namespace(step, server, monkeypatch):
    monkeypatch.delenv("STAGECRAFT_NAMESPACE")
    with pytest.raises(UserError) as caught:
        step().run(IN_STEP)
    assert caught.value.record == "STAGECRAFT_NAMESPACE"


def test_another_step_at_the_same_checkpoints(step, cluster, server):
    """It is refused before there is a job, also on a volume."""
    one = step()
    one.run(IN_STEP, run_fn="stub_training.done")
    [folder] = {
        each.body["metadata"]["annotations"]["stagecraft.dev/checkpoints"]
        for each in server.requests
        if each.method == "POST" and each.path.endswith("/leases")
    }
    assert folder.startswith(f"{one.checkpoints}/") and cluster.leases() == []
    terms = {"seconds": 60.0, "grace": 0.0}
    other = ClusterLease(connection.connect(), server.namespace, folder, name="train-2", **terms)
    other.claim()
    with pytest.raises(LeaseHeldError, match=r"train-2 \(process") as refused:
        one.run(IN_STEP, run_fn="stub_training.done")
    assert refused.value.place == folder and refused.value.holder == other.holder
    assert len(cluster.pods) == 2
    other.release()
    one.run(IN_STEP, run_fn="stub_training.done")
    assert len(cluster.pods) == 4


def test_it_may_have_no_lease(step, server):
    server.forbid("create", "leases.coordination.k8s.io")
    with pytest.raises(Refused) as refused:
        step().run(IN_STEP)
    assert "manifests/base/training-access.yaml" in str(refused.value)
    assert not any(each.method == "POST" and "/jobs" in each.path for each in server.requests)
