"""The Kubernetes API of the tests, asked by the real client: it answers as a cluster would."""

import pathlib
import stat
import threading
from collections.abc import Iterator

import kubernetes
import pytest
import urllib3
from kube_api import KubeApi, kube_api

NS = "kubeflow"
Core = kubernetes.client.CoreV1Api


@pytest.fixture
def server() -> Iterator[KubeApi]:
    before = set(threading.enumerate())
    with kube_api() as api:
        yield api
    assert set(threading.enumerate()) <= before


@pytest.fixture
def client(server: KubeApi, tmp_path: pathlib.Path) -> kubernetes.client.ApiClient:
    path = server.kubeconfig(tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return kubernetes.config.new_client_from_config(str(path))


@pytest.fixture
def core(client: kubernetes.client.ApiClient) -> Core:
    return Core(client)


def test_a_watch_tells_what_happens_to_those_selected(server, core):
    server.add_pod("x", {"run": "1"})
    server.add_pod("y", {"run": "2"})
    version = core.list_namespaced_pod(NS).metadata.resource_version
    watch = kubernetes.watch.Watch()
    events = watch.stream(core.list_namespaced_pod, NS, label_selector="run=1")

    def following() -> tuple[str, str]:
        event = next(events)
        return event["type"], event["object"].metadata.name

    assert following() == ("ADDED", "x")
    server.add_pod("z", {"run": "1"}, waiting="ContainerCreating")
    assert following() == ("ADDED", "z")
    server.start("z")
    assert following() == ("MODIFIED", "z")
    core.patch_namespaced_pod("y", NS, {"metadata": {"labels": {"run": "1"}}})
    assert following() == ("ADDED", "y")
    core.patch_namespaced_pod("y", NS, {"metadata": {"labels": {"run": None}}})
    assert following() == ("DELETED", "y")
    core.delete_namespaced_pod("x", NS)  # marked: its container runs
    assert following() == ("MODIFIED", "x")
    assert core.read_namespaced_pod("x", NS).metadata.deletion_timestamp
    server.finish("x")
    assert [following(), following()] == [("MODIFIED", "x"), ("DELETED", "x")]
    watch.stop()
    events.close()

    again = kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, NS, resource_version=version, timeout_seconds=0
    )
    assert [event["type"] for event in again].count("DELETED") == 1


def test_it_ends_while_a_log_is_followed(tmp_path):
    before = set(threading.enumerate())
    with kube_api() as server:
        path = server.kubeconfig(tmp_path / "kubeconfig")
        core = Core(kubernetes.config.new_client_from_config(str(path)))
        server.add_pod("x")
        answer = core.read_namespaced_pod_log("x", NS, follow=True, _preload_content=False)
    assert set(threading.enumerate()) <= before
    with pytest.raises(urllib3.exceptions.ProtocolError):
        answer.read()
