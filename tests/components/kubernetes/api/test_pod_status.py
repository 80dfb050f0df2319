"""How pods ended that nobody lists any more."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kube_api import KubeApi
from kube_api.kubelet import PODS

from stagecraft.components.kubernetes.api.pod_status import PodWatch

LABELS = {"job": "train-1"}


@pytest.fixture
def watch(client: Any, server: KubeApi) -> Iterator[PodWatch]:
    made = PodWatch(client, server.namespace, "job=train-1").start()
    yield made
    made.close()


def wait_until(ready: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_pod_that_is_deleted_as_soon_as_it_has_failed(watch: PodWatch, server: KubeApi) -> None:
    server.add_pod("other", {"job": "train-2"})
    server.add_pod("a", LABELS)
    wait_until(watch.seen)
    server.finish("a", "Failed", 137, reason="OOMKilled")
    server.store.delete(PODS, server.namespace, "a")
    wait_until(lambda: watch.seen()[0].is_over)
    [pod] = watch.seen()
    assert (pod.name, pod.exit_code, pod.reason) == ("a", 137, "OOMKilled")


def test_deletions_in_their_order(watch: PodWatch, server: KubeApi) -> None:
    uids = {name: server.add_pod(name, LABELS)["metadata"]["uid"] for name in ("a", "b")}
    for name in ("b", "a"):
        server.store.delete(PODS, server.namespace, name)
        wait_until(lambda name=name: uids[name] in watch.deleted())
        assert server.store.get(PODS, server.namespace, name), "its container still runs"
    assert watch.deleted() == [uids["b"], uids["a"]]


def test_a_connection_that_breaks(watch: PodWatch, server: KubeApi) -> None:
    server.add_pod("a", LABELS)
    wait_until(watch.seen)
    server.hang_up()
    server.add_pod("b", LABELS)
    wait_until(lambda: len(watch.seen()) == 2)


def test_without_the_permission(client: Any, server: KubeApi) -> None:
    server.forbid("watch", "pods")
    server.add_pod("a", LABELS)
    watch = PodWatch(client, server.namespace, "job=train-1").start()
    wait_until(lambda: watch.refused)
    assert watch.seen() == []
