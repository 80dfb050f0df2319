"""The Kubernetes API of the tests, asked by the real client: it answers as a cluster would."""

from __future__ import annotations

import datetime
import json
import pathlib
import stat
import threading
from collections.abc import Iterator

import kubernetes
import pytest
import urllib3
from kube_api import KubeApi, kube_api
from kubernetes.client.exceptions import ApiException
from messages import Messages

NS = "kubeflow"


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
def core(client: kubernetes.client.ApiClient) -> kubernetes.client.CoreV1Api:
    return kubernetes.client.CoreV1Api(client)


def refusal(error: pytest.ExceptionInfo[ApiException]) -> tuple[int, str, str]:
    body = json.loads(error.value.body)
    assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", error.value.status)
    return body["code"], body["reason"], body["message"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", "abc"),
        ("run=1", "ab"),
        ("run==1,step=train", "a"),
        ("run in (1, 2),step=train", "ac"),
        ("run notin (2)", "ab"),
        ("run!=1", "c"),
        ("done", "b"),
        ("!done", "ac"),
        ("run=3", ""),
    ],
)
def test_pods_are_found_by_their_labels(
    server: KubeApi, core: kubernetes.client.CoreV1Api, selector: str, expected: str
) -> None:
    server.add_pod("a", {"run": "1", "step": "train"})
    server.add_pod("b", {"run": "1", "step": "push", "done": "yes"})
    server.add_pod("c", {"run": "2", "step": "train"})
    server.add_pod("other", {"run": "1"}, namespace="elsewhere")
    found = core.list_namespaced_pod(NS, label_selector=selector)
    assert [pod.metadata.name for pod in found.items] == list(expected)
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", f"/api/v1/namespaces/{NS}/pods")
    assert request.query["labelSelector"] == selector
    assert request.user == "ci@example.com"


def test_a_list_comes_in_pieces(server: KubeApi, core: kubernetes.client.CoreV1Api) -> None:
    for name in "abcde":
        server.add_pod(name)
    names, token, pages = [], None, 0
    while pages == 0 or token:
        found = core.list_namespaced_pod(NS, limit=2, _continue=token)
        names += [pod.metadata.name for pod in found.items]
        token, pages = found.metadata._continue, pages + 1
    assert (names, pages) == (list("abcde"), 3)

    token = core.list_namespaced_pod(NS, limit=2).metadata._continue
    server.expire()
    with pytest.raises(ApiException) as error:
        core.list_namespaced_pod(NS, limit=2, _continue=token)
    assert refusal(error)[:2] == (410, "Expired")


def test_a_pod_goes_from_waiting_to_its_end(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
    server.add_pod("x", waiting="ImagePullBackOff")
    pod = core.read_namespaced_pod("x", NS)
    assert pod.status.phase == "Pending" and pod.metadata.uid
    assert isinstance(pod.metadata.creation_timestamp, datetime.datetime)
    assert pod.status.container_statuses[0].state.waiting.reason == "ImagePullBackOff"
    server.start("x")
    assert core.read_namespaced_pod("x", NS).status.phase == "Running"
    server.finish("x", "Failed", 137, reason="OOMKilled")
    pod = core.read_namespaced_pod("x", NS)
    ended = pod.status.container_statuses[0].state.terminated
    assert (pod.status.phase, ended.exit_code, ended.reason) == ("Failed", 137, "OOMKilled")


def test_a_log_is_read(server: KubeApi, core: kubernetes.client.CoreV1Api) -> None:
    server.add_pod("x")
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=datetime.timezone.utc)
    for line in ("one", "two", "drei·"):
        server.log("x", line, at=at)
    assert core.read_namespaced_pod_log("x", NS) == "one\ntwo\ndrei·\n"
    assert core.read_namespaced_pod_log("x", NS, tail_lines=1) == "drei·\n"
    assert core.read_namespaced_pod_log("x", NS, limit_bytes=6) == "one\ntw"
    assert core.read_namespaced_pod_log("x", NS, since_seconds=60) == ""
    stamped = core.read_namespaced_pod_log("x", NS, tail_lines=1, timestamps=True)
    assert stamped == "2026-01-02T03:04:05.678900000Z drei·\n"


def test_a_log_is_followed_to_the_end_of_its_container(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
    server.add_pod("x")
    server.log("x", "before")
    answer = core.read_namespaced_pod_log("x", NS, follow=True, _preload_content=False)
    lines = iter(kubernetes.watch.watch.iter_resp_lines(answer))
    assert next(lines) == "before"
    server.log("x", "while")
    assert next(lines) == "while"
    server.log("x", "at the end")
    server.finish("x")
    assert list(lines) == ["at the end"]
    assert core.read_namespaced_pod_log("x", NS, follow=True) == "before\nwhile\nat the end\n"


def test_a_followed_log_ends_with_its_pod(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
    server.add_pod("x")
    server.log("x", "hello")
    answer = core.read_namespaced_pod_log("x", NS, follow=True, _preload_content=False)
    lines = iter(kubernetes.watch.watch.iter_resp_lines(answer))
    assert next(lines) == "hello"
    core.delete_namespaced_pod("x", NS, grace_period_seconds=0)
    assert list(lines) == []


def test_a_followed_log_breaks_off(server: KubeApi, core: kubernetes.client.CoreV1Api) -> None:
    server.add_pod("x")
    server.log("x", "hello")
    answer = core.read_namespaced_pod_log("x", NS, follow=True, _preload_content=False)
    lines = iter(kubernetes.watch.watch.iter_resp_lines(answer))
    assert next(lines) == "hello"
    server.hang_up()
    with pytest.raises(urllib3.exceptions.ProtocolError):
        next(lines)
    assert core.read_namespaced_pod_log("x", NS) == "hello\n"


def test_where_there_is_no_log(
    server: KubeApi, core: kubernetes.client.CoreV1Api, messages: Messages
) -> None:
    def refused(name: str, **options: object) -> str:
        with pytest.raises(ApiException) as error:
            core.read_namespaced_pod_log(name, NS, **options)
        code, reason, message = refusal(error)
        assert (code, reason) in ((400, "BadRequest"), (404, "NotFound"))
        return message

    server.add_pod("x", waiting="ContainerCreating")
    waiting = 'container "main" in pod "x" is waiting to start: '
    assert refused("x") == waiting + "ContainerCreating"
    assert refused("gone") == 'pods "gone" not found'
    messages.check(refused("x", container="y"))
    previous = 'previous terminated container "main" in pod "x" not found'
    assert refused("x", previous=True) == previous
    server.add_pod("two", containers=("wait", "main"))
    said = refused("two")
    assert said.endswith("[wait main]")
    messages.check(said)
    server.add_pod("late", scheduled=False)
    assert core.read_namespaced_pod_log("late", NS) == ""


def test_a_restarted_container_keeps_its_last_log(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
    server.add_pod("x")
    server.log("x", "first")
    server.restart("x", 1)
    server.log("x", "second")
    assert core.read_namespaced_pod_log("x", NS) == "second\n"
    assert core.read_namespaced_pod_log("x", NS, previous=True) == "first\n"
    server.restart("x", 1, back_off=True)
    assert core.read_namespaced_pod_log("x", NS) == "second\n"
    assert core.read_namespaced_pod_log("x", NS, previous=True) == "second\n"
    status = core.read_namespaced_pod("x", NS).status.container_statuses[0]
    assert (status.restart_count, status.last_state.terminated.exit_code) == (2, 1)


def test_a_watch_tells_what_happens_to_those_selected(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
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


def test_a_watch_from_too_long_ago_expires(
    server: KubeApi, core: kubernetes.client.CoreV1Api, messages: Messages
) -> None:
    server.add_pod("x")
    version = core.list_namespaced_pod(NS).metadata.resource_version
    server.expire()
    events = kubernetes.watch.Watch().stream(core.list_namespaced_pod, NS, resource_version=version)
    with messages.raises(ApiException) as error:
        next(events)
    assert error.value.status == 410
    assert len(server.requests) == 3  # the client tries once again by itself


def test_who_may_not_is_told_so(server: KubeApi, core: kubernetes.client.CoreV1Api) -> None:
    server.users["token"] = "system:serviceaccount:kubeflow:stagecraft-ci"
    server.add_pod("x")
    server.forbid("list", "pods")
    with pytest.raises(ApiException) as error:
        core.list_namespaced_pod(NS)
    assert refusal(error) == (
        403,
        "Forbidden",
        'pods is forbidden: User "system:serviceaccount:kubeflow:stagecraft-ci" cannot list '
        'resource "pods" in API group "" in the namespace "kubeflow"',
    )
    assert core.read_namespaced_pod("x", NS).metadata.name == "x"
    server.forbid("get", "pods/log")
    with pytest.raises(ApiException) as error:
        core.read_namespaced_pod_log("x", NS)
    assert refusal(error)[2].startswith('pods "x" is forbidden: User "system:serviceaccount')
    server.allow("get", "pods/log")
    assert core.read_namespaced_pod_log("x", NS) == ""


def test_access_can_be_asked_for(server: KubeApi, client: kubernetes.client.ApiClient) -> None:
    server.forbid("create", "tfjobs.kubeflow.org")

    def may(verb: str, resource: str, group: str, subresource: str | None = None) -> bool:
        attributes = {"verb": verb, "resource": resource, "group": group, "namespace": NS}
        if subresource:
            attributes["subresource"] = subresource
        review = kubernetes.client.AuthorizationV1Api(client).create_self_subject_access_review(
            {"spec": {"resourceAttributes": attributes}}
        )
        return review.status.allowed

    assert not may("create", "tfjobs", "kubeflow.org")
    assert may("get", "tfjobs", "kubeflow.org")
    assert may("get", "pods", "", "log")


def test_an_unknown_token_is_unauthorized(server: KubeApi, tmp_path: pathlib.Path) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig", token="stale")
    core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(path)))
    with pytest.raises(ApiException) as error:
        core.list_namespaced_pod(NS)
    assert refusal(error) == (401, "Unauthorized", "Unauthorized")


def test_a_request_fails_as_often_as_wanted(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
    server.fail("GET", "/pods$", 503, "ServiceUnavailable", "etcd is away", times=2)
    for _ in range(2):
        with pytest.raises(ApiException) as error:
            core.list_namespaced_pod(NS)
        assert refusal(error) == (503, "ServiceUnavailable", "etcd is away")
    assert core.list_namespaced_pod(NS).items == []


def test_custom_resources(server: KubeApi, client: kubernetes.client.ApiClient) -> None:
    api = kubernetes.client.CustomObjectsApi(client)
    where = ("kubeflow.org", "v1", NS, "tfjobs")
    body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "train"}}
    with pytest.raises(ApiException) as error:  # no CRD
        api.create_namespaced_custom_object(*where, body)
    assert (error.value.status, error.value.body) == (404, "404 page not found\n")

    resource = server.install("kubeflow.org/v1", "tfjobs", "TFJob")
    made = api.create_namespaced_custom_object(*where, {**body, "spec": {"a": {"b": 1, "c": 2}}})
    assert made["metadata"]["uid"] and made["metadata"]["generation"] == 1
    with pytest.raises(ApiException) as error:
        api.create_namespaced_custom_object(*where, body)
    message = 'tfjobs.kubeflow.org "train" already exists'
    assert refusal(error) == (409, "AlreadyExists", message)

    change = {"spec": {"a": {"b": None}}}
    patched = api.patch_namespaced_custom_object(*where, "train", change)
    assert patched["spec"] == {"a": {"c": 2}} and patched["metadata"]["generation"] == 2
    with pytest.raises(ApiException) as error:
        api.replace_namespaced_custom_object(*where, "train", made)
    assert refusal(error)[:2] == (409, "Conflict")
    status = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    server.store.patch(resource, NS, "train", status, "application/merge-patch+json")
    (found,) = api.list_namespaced_custom_object(*where)["items"]
    assert found["status"] == status["status"] and found["spec"] == {"a": {"c": 2}}

    assert api.delete_namespaced_custom_object(*where, "train")["status"] == "Success"
    with pytest.raises(ApiException) as error:
        api.get_namespaced_custom_object(*where, "train")
    assert refusal(error) == (404, "NotFound", 'tfjobs.kubeflow.org "train" not found')


def test_jobs_and_patches(server: KubeApi, client: kubernetes.client.ApiClient) -> None:
    batch = kubernetes.client.BatchV1Api(client)
    pod = {"containers": [{"name": "main", "image": "image"}], "restartPolicy": "Never"}
    metadata = {"generateName": "train-", "finalizers": ["a.b/c"]}
    body = {"metadata": metadata, "spec": {"template": {"spec": pod}}}
    job = batch.create_namespaced_job(NS, body)
    name = job.metadata.name
    assert name.startswith("train-")
    patch = [{"op": "add", "path": "/spec/suspend", "value": True}]
    assert batch.patch_namespaced_job(name, NS, patch).spec.suspend is True
    batch.delete_namespaced_job(name, NS, propagation_policy="Background")
    assert batch.read_namespaced_job(name, NS).metadata.deletion_timestamp
    batch.patch_namespaced_job(name, NS, {"metadata": {"finalizers": None}})
    assert batch.list_namespaced_job(NS).items == []


def test_the_test_can_wait_for_a_request(
    server: KubeApi, core: kubernetes.client.CoreV1Api
) -> None:
    server.add_pod("x")
    text: list[str] = []
    reader = threading.Thread(
        target=lambda: text.append(core.read_namespaced_pod_log("x", NS, follow=True))
    )
    reader.start()
    server.wait_for("/pods/x/log$")
    server.log("x", "late")
    server.finish("x")
    reader.join()
    assert text == ["late\n"]
    with pytest.raises(TimeoutError):
        server.wait_for("/pods/y/log$", timeout=0)


def test_it_ends_while_a_log_is_followed(tmp_path: pathlib.Path) -> None:
    before = set(threading.enumerate())
    with kube_api() as server:
        path = server.kubeconfig(tmp_path / "kubeconfig")
        core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(path)))
        server.add_pod("x")
        answer = core.read_namespaced_pod_log("x", NS, follow=True, _preload_content=False)
    assert set(threading.enumerate()) <= before
    with pytest.raises(urllib3.exceptions.ProtocolError):
        answer.read()
