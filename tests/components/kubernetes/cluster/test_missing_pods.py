"""Pods that are not made, do not begin, or are taken away: people see why."""

from typing import Any

import pytest
from kube_api.store import Resource

from stagecraft.common.errors import UserError

EVENTS = Resource("", "v1", "events", "Event")


def event(by_hand: Any, about: dict[str, str], reason: str, message: str, **more: Any) -> None:
    body = {
        "metadata": {"generateName": "event-"},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": "Warning",
    }
    by_hand.server.store.create(EVENTS, by_hand.server.namespace, body | more)


def test_a_quota(by_hand):
    """Pods are not made at all: nothing but an event says why."""
    job = {"kind": "Job", "name": by_hand.name}
    words = 'pods "train-1-0-x" is forbidden: exceeded quota: gpus, requested: 8, limited: 4'
    other = {"kind": "Job", "name": "another"}
    for seconds in (20, 40):
        by_hand.clock.at(seconds, lambda: event(by_hand, job, "FailedCreate", words))
    by_hand.clock.at(20, lambda: event(by_hand, other, "FailedCreate", "of another"))
    by_hand.clock.at(20, lambda: event(by_hand, job, "Created", "all is well", type="Normal"))
    long_ago = {"lastTimestamp": "2020-01-01T00:00:00Z"}
    by_hand.clock.at(20, lambda: event(by_hand, job, "FailedCreate", "before", **long_ago))
    by_hand.run(100)
    assert by_hand.printed == [f"Job train-1: FailedCreate: {words}"]


def test_a_volume_that_is_not_there(by_hand):
    words = 'MountVolume.SetUp failed for volume "claim-0": not found'
    pod = {"kind": "Pod", "name": "train-1-0-abcde"}
    by_hand.clock.at(10, lambda: by_hand.add_pod("train-1-0-abcde", waiting="ContainerCreating"))
    by_hand.clock.at(20, lambda: event(by_hand, pod, "FailedMount", words))
    by_hand.run(100)
    assert by_hand.printed == [f"Pod train-1-0-abcde: FailedMount: {words}"]


def test_events_that_may_not_be_read(by_hand):
    by_hand.server.forbid("list", "events")
    by_hand.run(200)
    [told] = by_hand.printed
    assert "manifests/base/training-access.yaml" in told and "training continues" in told


def test_no_events_are_asked_for_while_all_run(by_hand):
    for index in (0, 1):
        by_hand.clock.at(0, lambda index=index: by_hand.add_pod(f"pod-{index}", index))
    by_hand.run(500)
    assert by_hand.asked("GET", "/events") == 0


def test_an_image_that_is_not_there(by_hand):
    def add() -> None:
        by_hand.add_pod("pod-0")
        by_hand.add_pod("pod-1", 1, waiting="ImagePullBackOff")

    by_hand.clock.at(10, add)
    by_hand.clock.at(305, lambda: by_hand.server.finish("pod-0"))
    with pytest.raises(UserError) as error:
        by_hand.training().run()
    assert "worker 1 (pod pod-1)" in str(error.value).splitlines()[0]
    assert "worker 1: ImagePullBackOff" in by_hand.printed
    assert 300 < by_hand.clock.now < 400
    assert by_hand.jobs() == []


def test_an_image_that_comes_late(by_hand):
    by_hand.clock.at(10, lambda: by_hand.add_pod("pod-0", waiting="ErrImagePull"))
    by_hand.clock.at(200, lambda: by_hand.server.start("pod-0"))
    by_hand.run(600)
    assert by_hand.printed == ["worker 0: ErrImagePull"]


def test_no_node_for_a_pod(by_hand):
    """That may take its time: a node has to come, or another training to end."""
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

    def add() -> None:
        by_hand.add_pod("pod-0", scheduled=False)
        by_hand.patch_pod("pod-0", conditions=[condition | {"message": words}])

    by_hand.clock.at(10, add)
    by_hand.run(1000)
    assert by_hand.printed == [f"worker 0: Unschedulable: {words}"]


def test_an_evicted_pod(by_hand):
    words = "The node was low on resource: memory."

    def evict() -> None:
        by_hand.server.finish("pod-0", "Failed", 137)
        by_hand.patch_pod("pod-0", reason="Evicted", message=words)

    def drain() -> None:
        by_hand.server.finish("pod-1", "Failed", 143)
        disruption = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
        }
        by_hand.patch_pod("pod-1", conditions=[disruption])
        by_hand.add_pod("pod-2")
        by_hand.server.log("pod-2", "goes on")

    by_hand.clock.at(10, lambda: by_hand.add_pod("pod-0"))
    by_hand.clock.at(20, evict)
    by_hand.clock.at(40, lambda: by_hand.add_pod("pod-1"))
    by_hand.clock.at(60, drain)
    by_hand.clock.at(80, lambda: by_hand.server.finish("pod-2"))
    by_hand.run(90)
    assert by_hand.printed == [
        f"worker 0: pod pod-0 failed: exit code 137, Evicted: {words}",
        "worker 0: pod pod-1 failed: exit code 143, EvictionByEvictionAPI",
        "worker 0: goes on",
    ]


def test_memory(by_hand):
    by_hand.clock.at(10, lambda: by_hand.add_pod("pod-0"))
    by_hand.clock.at(20, lambda: by_hand.server.finish("pod-0", "Failed", 137, reason="OOMKilled"))
    by_hand.clock.at(
        30, lambda: by_hand.end("Failed", reason="BackoffLimitExceeded", message="limit")
    )
    with pytest.raises(UserError) as caught:
        by_hand.training().run()
    assert caught.value.record == "Job train-1"


def test_whose_fault_it_was(by_hand):
    """Not of one that was lost before, nor of one that lost the other."""

    def fails(name: str, index: int, code: int) -> None:
        by_hand.add_pod(name, index)
        by_hand.server.log(name, f"{name} says")
        by_hand.server.finish(name, "Failed", code)

    by_hand.clock.at(10, lambda: fails("a", 0, 137))
    by_hand.clock.at(20, lambda: fails("b", 1, 138))
    by_hand.clock.at(30, lambda: fails("c", 1, 1))
    by_hand.clock.at(30, lambda: fails("d", 0, 138))
    by_hand.clock.at(40, lambda: by_hand.end("Failed", reason="PodFailurePolicy", message="c"))
    with pytest.raises(UserError) as error:
        by_hand.training().run()
    assert str(error.value).splitlines() == [
        "Job train-1 failed: PodFailurePolicy: c",
        "worker 1: pod c failed: exit code 1",
        "  c says",
    ]
