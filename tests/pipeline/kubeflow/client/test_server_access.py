"""The server that stands for Kubeflow Pipelines: who may ask, and what can go wrong."""

import threading
import urllib.error
import urllib.parse
import urllib.request

import kfp_server
import pytest
import two_steps
import yaml
from kfp_server import ask, upload

TINY = two_steps.pipeline()


def test_several_users(create_run):
    with kfp_server.serving(multi_user=True) as server:
        assert ask(server, "GET", "healthz")[1]["multi_user"] is True
        assert ask(server, "GET", "pipelines")[0] == 200  # those that all share
        assert ask(server, "GET", "runs")[0] == 400
        assert ask(server, "GET", "runs", namespace="team")[0] == 200
        status, body = ask(server, "GET", "runs", namespace="other")
        assert (status, body["code"]) == (403, 7)
        assert "'user@example.com'" in body["message"]
        assert upload(server, yaml.safe_dump(TINY), name="x", namespace="other")[0] == 400
        assert create_run(server)[0] == 400  # there is no default experiment
        given = {"display_name": "e", "namespace": "team"}
        _, experiment = ask(server, "POST", "experiments", given)
        assert create_run(server, experiment_id=experiment["experiment_id"])[0] == 200
        server.access.user = None
        assert ask(server, "GET", "runs", namespace="team")[0] == 401
        known = {"kubeflow-userid": "user@example.com"}
        assert ask(server, "GET", "runs", None, known, namespace="team")[0] == 200


def test_faults_happen_as_often_as_asked():
    with kfp_server.serving() as server:
        server.fail("GET", "/runs$", status=503, body="upstream connect error", times=2)
        assert [ask(server, "GET", "runs")[0] for _ in range(3)] == [503, 503, 200]
        server.drop("/runs$")
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            ask(server, "GET", "runs")
        assert [(request.method, request.path) for request in server.requests] == [
            ("GET", "/apis/v2beta1/runs")
        ] * 4


def test_a_hanging_request_ends_with_the_server():
    before = threading.active_count()
    caught = []

    def wait():
        try:
            ask(server, "GET", "runs")
        except (OSError, urllib.error.URLError) as error:
            caught.append(error)

    with kfp_server.serving() as server:
        fault = server.hang("/runs")
        asking = threading.Thread(target=wait)
        asking.start()
        assert fault.hit.wait(60)
        assert ask(server, "GET", "healthz")[0] == 200  # others are answered meanwhile
    asking.join(60)
    assert len(caught) == 1 and threading.active_count() == before


def test_door():
    with kfp_server.serving() as server:
        server.require(token="t")
        assert ask(server, "GET", "healthz")[0] == 401
        assert ask(server, "GET", "healthz", None, {"Authorization": "Bearer t"})[0] == 200
        server.require(token="t", istio=True)
        assert ask(server, "GET", "healthz") == (403, "RBAC: access denied")
        server.require(cookie="authservice_session=s", sign_in_page=True)
        status, page = ask(server, "GET", "healthz")  # urllib follows to the page
        assert status == 200 and "Log in" in page
        cookie = {"Cookie": "a=b; authservice_session=s"}
        assert ask(server, "GET", "healthz", None, cookie)[1]["multi_user"] is False


@pytest.mark.usefixtures("quiet")
def test_real_client_over_tls_with_a_token(tiny, connected):
    with kfp_server.serving(tls=True) as server:
        server.require(token="t")
        client = connected(server, existing_token="t", ssl_ca_cert=server.certificate)
        assert client.upload_pipeline(str(tiny), "tiny").display_name == "tiny"
        assert server.requests[-1].file() == ("tiny.yaml", tiny.read_bytes())
