"""A Trainer's step is tried again, and finds what an attempt before has left."""

import json
import pathlib
import shutil
from typing import Any

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.job_folder import heartbeat
from stagecraft.components.kubernetes.launch import launch
from stagecraft.components.object_store.folder import VolumeFolder
from stagecraft.trainer_module.checkpointing.lease import Holder, LeaseLostError

IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2}


class Killed(BaseException):
    """A process that is killed does nothing any more."""


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Any:
    def is_pod(name: str) -> None:
        monkeypatch.setenv("KFP_POD_NAME", name)
        monkeypatch.setenv("KFP_POD_UID", f"{name}-uid")

    is_pod("first")
    return is_pod


def open_gate(one: Any) -> None:
    one.checkpoints.mkdir(parents=True, exist_ok=True)
    (one.checkpoints / "gate").touch()


def jobs(server: Any) -> list[dict[str, Any]]:
    [found] = [each for each in server.resources.values() if each.plural == "jobs"]
    return server.store.list(found, "", lambda manifest: True)


def killed(one: Any, monkeypatch: pytest.MonkeyPatch, function: str, **run: Any) -> None:
    """An attempt that comes as far as a method of TrainingJob."""

    def kill(*given: Any, **more: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(
            f"stagecraft.components.kubernetes.launch.training_job.TrainingJob.{function}", kill
        )
        patch.setattr(
            "stagecraft.components.kubernetes.launch.training_job.TrainingJob.delete",
            lambda self: None,
        )
        with pytest.raises(Killed):
            one.run(IN_STEP, **run)


def test_while_its_job_runs(step, cluster, server, owner, aside, monkeypatch):
    one = step()
    killed(one, monkeypatch, "_follow", run_fn="stub_training.waits")
    [before] = jobs(server)
    assert [each["name"] for each in before["metadata"]["ownerReferences"]] == ["first"]
    cluster.wait_for(lambda: len(cluster.running()) == 2)
    heartbeat.renew(str(one.job_folder), 30)
    copied = {path: path.stat().st_ino for path in (one.job_folder / "inputs").rglob("*")}
    assert copied
    owner("second")
    running = aside(one.run, IN_STEP, run_fn="stub_training.waits")
    cluster.wait_for(lambda: all(pod.lines for pod in cluster.pods) or running.done())
    cluster.wait_for(lambda: jobs(server)[0]["metadata"]["ownerReferences"][0]["name"] == "second")
    assert heartbeat.seconds_left(str(one.job_folder)) > 100
    assert {path: path.stat().st_ino for path in copied} == copied
    open_gate(one)
    running.result()
    [after] = jobs(server)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [(each["kind"], each["uid"]) for each in after["metadata"]["ownerReferences"]] == [
        ("Pod", "second-uid")
    ]
    assert len(cluster.pods) == 2
    assert (pathlib.Path(one.model.uri) / "Format-Serving" / "model").read_text() == "weights"


def test_when_its_job_is_done(step, cluster, monkeypatch):
    one = step()
    killed(one, monkeypatch, "_follow", run_fn="stub_training.done")
    cluster.wait_for(lambda: cluster.conditions() == ["Complete"])
    one.run(IN_STEP, run_fn="stub_training.done")
    assert one.model.get_int_custom_property("steps") == 4
    assert len(cluster.pods) == 2


def test_when_its_model_was_taken(step, cluster, monkeypatch):
    """Killed after that, before anybody noted it: what the job has left is not there any more."""
    one = step()

    def kill(self: Any, last: str = "") -> None:
        shutil.rmtree(one.job_folder / "outputs")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(VolumeFolder, "clear", kill)
        with pytest.raises(Killed):
            one.run(IN_STEP, run_fn="stub_training.done")
    one.run(IN_STEP, run_fn="stub_training.done")
    assert one.model.get_int_custom_property("steps") == 4
    assert len(cluster.pods) == 4


@pytest.mark.parametrize(
    "kind", ["job", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tfjob", "trainjob"))]
)
def test_after_its_job_has_failed(step, cluster, server, kind):
    one = step(kind)
    with pytest.raises(UserError, match=r"stagecraft\.common\.errors\.UserError"):
        one.run(IN_STEP, run_fn="stub_training.refuses_until_it_may_not")
    open_gate(one)
    one.run(IN_STEP, run_fn="stub_training.refuses_until_it_may_not")
    assert one.model.get_int_custom_property("steps") == 4
    assert cluster.conditions() in (["Complete"], ["Succeeded"])
    assert len(cluster.gone) == 1


def test_what_a_training_has_left_that_nobody_tries_again(step, cluster):
    one = step(ttl_seconds=600)
    jobs = one.volume / "jobs"
    names = ("train-0123456789abcdef", "train-fedcba9876543210", "mine")
    for name, seconds in zip(names, (-601.0, -590.0, -601.0), strict=True):
        (jobs / name / "inputs").mkdir(parents=True)
        heartbeat.renew(str(jobs / name), seconds)
    one.run(IN_STEP, run_fn="stub_training.done")
    assert sorted(path.name for path in jobs.iterdir()) == ["mine", "train-fedcba9876543210"]


@pytest.mark.parametrize("verb", ["patch", "get"])
def test_it_may_not(step, cluster, server, owner, monkeypatch, verb):
    """The job would be deleted with the pod of the attempt before: that is none to go on with."""
    one = step()
    killed(one, monkeypatch, "_follow", run_fn="stub_training.hangs")
    heartbeat.renew(str(one.job_folder), 60)
    owner("second")
    server.forbid(verb, "jobs.batch")
    with pytest.raises(Refused) as error:
        one.run(IN_STEP, run_fn="stub_training.hangs")
    assert error.value.status == 403
    assert f"Job {one.job_folder.name}: cannot {verb}" in str(error.value)
    assert "manifests/base/training-access.yaml" in str(error.value)
    cluster.wait_for(lambda: not cluster.running())


def test_the_service_of_a_job_before(by_hand, server):
    """It is still there, and about to go with its owner: it would leave the new job without."""
    [services] = [each for each in server.resources.values() if each.plural == "services"]
    gone = {"apiVersion": "batch/v1", "kind": "Job", "name": by_hand.name, "uid": "gone"}
    service = by_hand.objects[0]
    of_another = service | {"metadata": service["metadata"] | {"ownerReferences": [gone]}}
    server.store.create(services, server.namespace, of_another)
    by_hand.run(60)
    [there] = server.store.list(services, "", lambda manifest: True)
    [job] = by_hand.jobs()
    assert [each["uid"] for each in there["metadata"]["ownerReferences"]] == [
        job["metadata"]["uid"]
    ]


def test_pods_of_a_job_before_are_waited_for(by_hand):
    """They may be saving still, at the same checkpoints."""
    by_hand.add_pod("old")
    by_hand.clock.at(60, lambda: by_hand.server.finish("old", "Failed", 143))
    by_hand.clock.at(50, lambda: waiting.extend(by_hand.jobs()))
    waiting: list[object] = []
    by_hand.run(100)
    assert not waiting and len(by_hand.jobs()) == 1
    assert "earlier job" in by_hand.printed[0]


def test_a_pod_that_never_goes_is_not_waited_for_for_ever(by_hand):
    """Its node is lost."""
    by_hand.add_pod("old")
    by_hand.run(400)
    assert len(by_hand.jobs()) == 1


@pytest.mark.parametrize(("taker", "deletes"), [("train-2", 1), ("train-1", 0)])
def test_a_step_that_has_lost_its_lease(by_hand, taker, deletes):
    """It ends its job; unless another attempt goes on with that."""
    holder = Holder(name=taker, host="node-2", process=7)

    def check() -> None:
        if by_hand.clock.now > 50:
            raise LeaseLostError("/checkpoints", "it has it now", holder)

    with pytest.raises(LeaseLostError) as lost:
        by_hand.training(check=check).run()
    assert lost.value.holder == holder
    assert by_hand.asked("DELETE") == deletes
    assert len(by_hand.jobs()) == 1 - deletes


def test_a_job_that_is_being_deleted(by_hand, server):
    resource, body = by_hand.resource, by_hand.objects[-1]
    held = body | {"metadata": body["metadata"] | {"finalizers": ["foregroundDeletion"]}}
    old = server.store.create(resource, server.namespace, held)
    server.store.delete(resource, server.namespace, by_hand.name)
    free = {"metadata": {"finalizers": None}}
    by_hand.clock.at(60, lambda: server.store.patch(resource, server.namespace, by_hand.name, free))
    by_hand.run(100)
    [job] = by_hand.jobs()
    assert job["metadata"]["uid"] != old["metadata"]["uid"]
    assert by_hand.asked("DELETE") == 0


def test_no_owner_in_another_namespace(tmp_path, owner, monkeypatch):
    """Kubernetes would delete the job at once: an owner that it cannot find is gone."""
    monkeypatch.setattr(launch, "_NAMESPACE", tmp_path / "namespace")
    assert json.dumps(launch._owner("kubeflow")).count("first") == 2
    (tmp_path / "namespace").write_text("kubeflow")
    assert launch._owner("kubeflow") is not None
    assert launch._owner("training") is None
