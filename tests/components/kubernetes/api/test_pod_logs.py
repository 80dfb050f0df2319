"""Logs of pods, from a server that answers as a cluster would."""

import datetime
import itertools
from collections.abc import Iterator

import kubernetes
import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import pod_logs
from stagecraft.components.kubernetes.api.connection import Refused, Unreachable, connect

NS = "kubeflow"
Client = kubernetes.client.ApiClient
AT = datetime.datetime.now(datetime.timezone.utc)


def no_sleep(seconds: float) -> None:
    """Time passes by itself."""


def followed(client: Client, pod: str = "x", **more: object) -> Iterator[str]:
    return pod_logs.followed(client, NS, pod, container="main", sleep=no_sleep, **more)


def test_pods_come_in_the_order_in_which_they_were_made(server, client):
    for name in "bac":
        server.add_pod(name, {"run": "1"}, annotations={"of": name})
    server.add_pod("z", {"run": "2"})
    server.add_pod("later", {"run": "1"}, waiting="ContainerCreating")
    server.add_pod("bad", {"run": "1"}, waiting="ErrImagePull")
    server.add_pod("nowhere", {"run": "1"}, scheduled=False)
    server.finish("a")
    found = pod_logs.pods(client, NS, "run=1")
    assert [(pod.created, pod.name) for pod in found] == sorted(
        (pod.created, pod.name) for pod in found
    )
    by_name = {pod.name: pod for pod in found}
    assert set(by_name) == {"a", "b", "c", "later", "bad", "nowhere"}
    assert by_name["b"].annotations == {"of": "b"} and not by_name["b"].is_over
    assert by_name["a"].is_over and by_name["a"].phase == "Succeeded"
    assert [by_name[name].waiting for name in ("later", "bad", "nowhere")] == [
        None,
        "ErrImagePull",
        None,
    ]


def test_lines(server, client):
    server.add_pod("x")
    for line in ("one", "", "  zwei·"):
        server.log("x", line)
    read = list(pod_logs.lines(client, NS, "x", container="main"))
    assert read == ["one", "", "  zwei·"]
    assert list(pod_logs.lines(client, NS, "x", container="main", tail=1)) == ["  zwei·"]
    assert list(pod_logs.lines(client, NS, "x", container="main", tail=0)) == []
    with pytest.raises(Refused, match='pods "y" not found') as error:
        list(pod_logs.lines(client, NS, "y", container="main"))
    assert (error.value.status, error.value.transient) == (404, False)


def test_followed_to_its_end(server, client):
    server.add_pod("x")
    server.log("x", "one")
    lines = followed(client)
    assert next(lines) == "one"
    server.log("x", "two")
    assert next(lines) == "two"
    server.log("x", "three")
    server.finish("x")
    assert list(lines) == ["three"]
    assert list(followed(client, tail=1)) == ["three"]


def test_lines_of_the_same_moment_are_told_apart_by_their_number(server, client):
    server.add_pod("x")
    for line in ("a", "b"):
        server.log("x", line, at=AT)
    lines = followed(client)
    assert [next(lines), next(lines)] == ["a", "b"]
    server.hang_up()
    server.log("x", "c", at=AT)
    assert next(lines) == "c"
    server.hang_up()
    server.log("x", "c", at=AT + datetime.timedelta(microseconds=1))
    server.finish("x")
    assert list(lines) == ["c"]


def test_a_connection_that_breaks_before_the_first_line(server, client):
    """What was printed long before is not passed over."""
    server.add_pod("x")
    broken = itertools.count()
    read = pod_logs._read

    def breaks(*given: object) -> Iterator[str]:
        if next(broken) == 0:
            raise pod_logs.Broken("closed")
        yield from read(*given)  # type: ignore[arg-type]

    for minute, line in enumerate("abc"):
        server.log("x", line, at=AT - datetime.timedelta(minutes=60 - minute))
    server.finish("x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_logs, "_read", breaks)
        assert list(followed(client, tail=2)) == ["b", "c"]


def test_a_container_that_has_not_begun_is_waited_for(server, client):
    server.add_pod("x", waiting="ContainerCreating")
    asked = itertools.count(1)

    def patient() -> bool:
        if next(asked) == 3:
            server.start("x")
            server.log("x", "begun")
            server.finish("x")
        return True

    assert list(followed(client, patient=patient)) == ["begun"]
    server.add_pod("y", waiting="ImagePullBackOff")
    assert list(followed(client, "y", patient=lambda: False)) == []


def test_failures_of_the_server_are_waited_for(server, client, monkeypatch):
    server.add_pod("x")
    server.log("x", "one")
    server.finish("x")
    server.fail("GET", "/log$", 500, "InternalError", "kubelet is away", times=3)
    assert list(followed(client)) == ["one"]
    server.fail("GET", "/log$", 500, "InternalError", "kubelet is away", times=None)
    monkeypatch.setattr(pod_logs, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(Refused, match="kubelet"):
        list(followed(client))


def test_merged(server, client):
    server.add_pod("a", {"run": "1"})
    server.log("a", "from a")
    asked = itertools.count(1)

    def present() -> tuple[list[pod_logs.Pod], bool]:
        time = next(asked)
        if time == 2:
            server.add_pod("b", {"run": "1"})
            server.log("b", "from b")
            server.finish("a")
        if time == 4:
            server.finish("b")
        return pod_logs.pods(client, NS, "run=1"), time < 4

    lines = pod_logs.merged(client, NS, present, container="main", sleep=no_sleep)
    assert sorted((pod.name, line) for pod, line in lines) == [("a", "from a"), ("b", "from b")]


@pytest.mark.parametrize("verb", ["list", "get"])
def test_the_role_is_named(server, client, verb):
    server.add_pod("x", {"run": "1"})
    server.forbid(verb, "pods" if verb == "list" else "pods/log")
    with pytest.raises(Refused) as error:
        pod_logs.pods(client, NS, "run=1")
        list(followed(client))
    assert (error.value.status, error.value.transient) == (403, False)


def test_connections(server, client, tmp_path):
    with pytest.raises(UserError, match="Expected"):
        connect("none")
    assert pod_logs.pods(connect("test"), NS, "run=1") == []
    server.url = "http://127.0.0.1:1"
    server.kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises(Unreachable, match="establish"):
        pod_logs.pods(connect(), NS, "run=1")
