"""The server that stands for Kubeflow Pipelines, asked by the real client and by hand."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from typing import Any

import kfp_server
import pytest
import yaml

EXECUTORS = {
    name: {"container": {"image": "i", "command": ["python", "-c", "print('done')"]}}
    for name in ("exec-say", "exec-after")
}
TINY: dict[str, Any] = {
    "pipelineInfo": {"name": "tiny"},
    "defaultPipelineRoot": "minio://bucket/base",
    "schemaVersion": "2.1.0",
    "root": {
        "dag": {
            "tasks": {
                "say": {"componentRef": {"name": "say"}, "taskInfo": {"name": "say"}},
                "after": {
                    "componentRef": {"name": "after"},
                    "dependentTasks": ["say"],
                    "taskInfo": {"name": "after"},
                },
            }
        },
        "inputDefinitions": {"parameters": {"word": {"parameterType": "STRING"}}},
    },
    "components": {
        "say": {"executorLabel": "exec-say"},
        "after": {"executorLabel": "exec-after"},
    },
    "deploymentSpec": {"executors": EXECUTORS},
}
PLATFORM = {
    "platforms": {
        "kubernetes": {"deploymentSpec": {"executors": {"exec-say": {"imagePullPolicy": "Always"}}}}
    }
}
BOTH = pytest.mark.parametrize("version", ["2.5", "2.16"])


@pytest.fixture
def tiny(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


@pytest.fixture
def quiet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of whoever runs this, and none of what the client prints and warns of."""
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def connected(server: kfp_server.Server, **options: Any) -> Any:
    import kfp.client

    # Taken from HOME when the module was imported.
    kfp.client.Client._LOCAL_KFP_CONTEXT = "/nonexistent/context.json"
    return kfp.client.Client(host=server.url, **options)


def ask(
    server: kfp_server.Server,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    **query: str,
) -> tuple[int, Any]:
    """Status and body, without a client's opinions."""
    url = f"{server.url}/apis/v2beta1/{path}?{urllib.parse.urlencode(query)}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def upload(
    server: kfp_server.Server, text: str, path: str = "upload", **query: str
) -> tuple[int, Any]:
    form = (
        '--b\r\nContent-Disposition: form-data; name="uploadfile"; filename="a.yaml"\r\n\r\n'
        f"{text}\r\n--b--\r\n"
    )
    url = f"{server.url}/apis/v2beta1/pipelines/{path}?{urllib.parse.urlencode(query)}"
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    request = urllib.request.Request(url, data=form.encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def create_run(server: kfp_server.Server, spec: Any = TINY, **more: Any) -> tuple[int, Any]:
    config = {"parameters": {"word": "a"}}
    given = {"display_name": "r", "pipeline_spec": spec, "runtime_config": config, **more}
    return ask(server, "POST", "runs", given)


def states(run: dict[str, Any]) -> dict[str, Any]:
    return {task["display_name"]: task.get("state") for task in run["run_details"]["task_details"]}


@BOTH
@pytest.mark.usefixtures("quiet")
def test_real_client_from_upload_to_deletion(tiny: pathlib.Path, version: str) -> None:
    with kfp_server.serving(version) as server:
        client = connected(server)
        assert client.get_kfp_healthz().multi_user is False
        pipeline = client.upload_pipeline(str(tiny), "tiny", "about it")
        assert (pipeline.display_name, pipeline.description) == ("tiny", "about it")
        assert client.get_pipeline_id("tiny") == pipeline.pipeline_id
        assert client.get_pipeline_id("tin") is None
        second = client.upload_pipeline_version(
            str(tiny), "second", pipeline_id=pipeline.pipeline_id
        )
        assert second.pipeline_spec["pipelineInfo"] == {"name": "tiny"}
        versions = client.list_pipeline_versions(pipeline.pipeline_id).pipeline_versions
        assert [row.display_name for row in versions] == ["tiny", "second"]

        experiment = client.create_experiment("e")
        assert client.get_experiment(experiment_name="e").experiment_id == experiment.experiment_id
        run = client.run_pipeline(
            experiment.experiment_id,
            "first",
            pipeline_id=pipeline.pipeline_id,
            version_id=second.pipeline_version_id,
            params={"word": "a"},
        )
        assert (run.state, run.run_details) == ("PENDING", None)
        assert run.runtime_config.parameters == {"word": "a"}
        assert run.pipeline_version_reference.pipeline_version_id == second.pipeline_version_id
        server.run(run.run_id).start("say")
        assert client.get_run(run.run_id).state == "RUNNING"
        client.terminate_run(run.run_id)
        assert client.get_run(run.run_id).state == "CANCELING"
        client.archive_run(run.run_id)
        assert client.get_run(run.run_id).storage_state == "ARCHIVED"
        client.delete_run(run.run_id)
        assert client.list_runs().runs is None
        for row in versions:
            client.delete_pipeline_version(pipeline.pipeline_id, row.pipeline_version_id)
        client.delete_pipeline(pipeline.pipeline_id)
        assert not server.pipelines and not server.versions and not server.runs


@pytest.mark.usefixtures("quiet")
def test_real_client_gets_pages(tiny: pathlib.Path) -> None:
    with kfp_server.serving() as server:
        client = connected(server)
        for number in range(5):
            client.upload_pipeline(str(tiny), f"p{number}")
        names, token, pages = [], "", 0
        while pages == 0 or token:
            page = client.list_pipelines(token, page_size=2, sort_by="created_at desc")
            assert page.total_size == 5
            names += [row.display_name for row in page.pipelines]
            token, pages = page.next_page_token, pages + 1
        assert (names, pages) == ([f"p{number}" for number in (4, 3, 2, 1, 0)], 3)


def test_pages_have_twenty_rows_unless_asked_otherwise() -> None:
    with kfp_server.serving() as server:
        assert ask(server, "GET", "runs") == (200, {})
        for number in range(21):
            create_run(server, display_name=f"r{number}")
        _, page = ask(server, "GET", "runs")
        assert (len(page["runs"]), page["total_size"]) == (20, 21)
        _, rest = ask(server, "GET", "runs", page_token=page["next_page_token"])
        assert [run["display_name"] for run in rest["runs"]] == ["r20"]
        assert "next_page_token" not in rest
        for query in (
            {"page_token": page["next_page_token"], "sort_by": "name"},
            {"page_token": "?"},
            {"sort_by": "size"},
            {"page_size": "-1"},
            {"filter": "{"},
            {"filter": '{"predicates": [{"operation": 1, "key": "size", "int_value": 1}]}'},
        ):
            assert ask(server, "GET", "runs", **query)[0] == 400, query


@BOTH
@pytest.mark.usefixtures("quiet")
def test_names_are_taken_once(tiny: pathlib.Path, version: str) -> None:
    from kfp_server_api import ApiException

    with kfp_server.serving(version) as server:
        client = connected(server)
        pipeline = client.upload_pipeline(str(tiny), "tiny")
        with pytest.raises(ApiException) as caught:
            client.upload_pipeline(str(tiny), "tiny")
        assert caught.value.status == 409
        told = json.loads(caught.value.body)
        assert set(told) == {"error_message", "error_details"}
        # From 2.15 on the reason is only in the server's log.
        assert ("already exists" in told["error_message"]) == (version == "2.5")
        with pytest.raises(ApiException) as caught:
            client.upload_pipeline_version(str(tiny), "tiny", pipeline_id=pipeline.pipeline_id)
        assert caught.value.status == 409
        ask(server, "POST", "experiments", {"display_name": "e"})
        status, told = ask(server, "POST", "experiments", {"display_name": "e"})
        assert (status, told["code"]) == (409, 6)
        assert ("error" in told) == (version == "2.5")
        assert told["details"][0]["message"].startswith("Failed to create a new experiment")


@pytest.mark.parametrize(
    ("version", "status", "told"),
    [("2.0", 500, True), ("2.5", 500, True), ("2.16", 500, False), ("2.17", 400, True)],
)
def test_a_file_that_is_refused(version: str, status: int, told: bool) -> None:
    with kfp_server.serving(version) as server:
        got, body = upload(server, yaml.safe_dump({**TINY, "schemaVersion": "2.0.0"}), name="x")
        assert got == status
        assert ("2.1.0" in body["error_message"]) == told
        assert not server.pipelines


def test_2_0_calls_a_name_that_is_taken_its_own_fault() -> None:
    with kfp_server.serving("2.0") as server:
        upload(server, yaml.safe_dump(TINY), name="x")
        status, body = upload(server, yaml.safe_dump(TINY), name="x")
        assert status == 500 and "already exists" in body["error_message"]


@BOTH
def test_what_is_not_there(version: str) -> None:
    with kfp_server.serving(version) as server:
        for path in ("pipelines/x", "pipelines/x/versions/y", "runs/x", "experiments/x"):
            status, body = ask(server, "GET", path)
            assert (status, body["code"]) == (404, 5), path
            assert ("error" in body) == (version == "2.5")
        assert ask(server, "GET", "jobs")[0] == 404
        # Neither of these is 404.
        assert upload(server, yaml.safe_dump(TINY), "upload_version", pipelineid="x")[0] == 400
        reference = {"pipeline_id": "x", "pipeline_version_id": "y"}
        status, body = create_run(server, None, pipeline_version_reference=reference)
        assert (status, body["code"]) == (500, 13)
        assert body["message"].endswith("PipelineVersion y not found")
        assert body["details"][0]["message"] == "Internal Server Error"


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({}, "parameter word is not optional"),
        ({"word": 1}, "requires type string"),
        ({"word": "a", "other": 1}, "not required by pipeline: other"),
    ],
)
def test_parameters_of_a_run_are_checked(parameters: dict[str, Any], told: str) -> None:
    with kfp_server.serving() as server:
        status, body = create_run(server, runtime_config={"parameters": parameters})
        assert (status, body["code"]) == (400, 3)
        assert told in body["message"]
        assert not server.runs


def test_only_the_newer_gateway_refuses_unknown_fields() -> None:
    for version, status in (("2.5", 200), ("2.16", 400)):
        with kfp_server.serving(version) as server:
            assert create_run(server, color="red")[0] == status


@BOTH
def test_pipelines_with_versions_stay(version: str) -> None:
    with kfp_server.serving(version) as server:
        _, pipeline = upload(server, yaml.safe_dump(TINY), name="x")
        assert ("name" in pipeline) == (version == "2.16")
        path = f"pipelines/{pipeline['pipeline_id']}"
        status, body = ask(server, "DELETE", path)
        assert status == 400
        assert ("cascade=true" in body["message"]) == (version == "2.16")
        status, _ = ask(server, "DELETE", path, cascade="true")
        assert (status, len(server.versions)) == ((200, 0) if version == "2.16" else (400, 1))


def test_a_platform_document_comes_back_beside_the_pipeline() -> None:
    with kfp_server.serving() as server:
        _, pipeline = upload(server, yaml.safe_dump_all([TINY, PLATFORM]), name="x")
        _, page = ask(server, "GET", f"pipelines/{pipeline['pipeline_id']}/versions")
        spec = page["pipeline_versions"][0]["pipeline_spec"]
        assert spec == {"pipeline_spec": TINY, "platform_spec": PLATFORM}
        status, run = create_run(server, spec)
        assert (status, run["pipeline_spec"]) == (200, spec)


def test_tasks_as_argo_has_them() -> None:
    with kfp_server.serving() as server:
        _, created = create_run(server)
        run = server.run()
        assert server.experiments[created["experiment_id"]].name == "Default"
        assert created["finished_at"] == "1970-01-01T00:00:00Z"
        run.start("say", "PENDING")
        _, got = ask(server, "GET", f"runs/{run.id}")
        assert states(got) == {
            run.workflow.name: "RUNNING",
            "root-driver": "SUCCEEDED",
            "root": "RUNNING",
            "say-driver": "SUCCEEDED",
            "say": "RUNNING",
            "executor": "PENDING",
        }
        with pytest.raises(ValueError, match="waits for 'say'"):
            run.start("after")
        run.finish("say", cached=True)
        run.finish("after", "FAILED")
        run.end("FAILED")
        _, got = ask(server, "GET", f"runs/{run.id}")
        assert (got["state"], "error" in got) == ("FAILED", False)
        assert [status["state"] for status in got["state_history"]] == [
            "PENDING",
            "RUNNING",
            "FAILED",
        ]
        tasks = got["run_details"]["task_details"]
        executors = {task.get("state") for task in tasks if task["display_name"] == "executor"}
        assert executors == {"SKIPPED", "FAILED"}
        (say,) = [task for task in tasks if task["display_name"] == "say"]
        assert say["state"] == "SUCCEEDED"
        assert say["child_tasks"][0]["pod_name"].startswith(f"{run.workflow.name}-")


def test_what_a_failure_leaves_out_has_no_state() -> None:
    with kfp_server.serving() as server:
        create_run(server)
        server.run().finish("say", "FAILED")
        server.run().end("FAILED")
        _, got = ask(server, "GET", f"runs/{server.run().id}")
        assert states(got)["say"] == "FAILED"
        assert states(got)["after-driver"] is None


def test_each_poll_is_a_step() -> None:
    with kfp_server.serving() as server:
        server.play(*kfp_server.whole("say", "after"))
        _, run = create_run(server)
        seen = [ask(server, "GET", f"runs/{run['run_id']}")[1]["state"] for _ in range(7)]
        assert seen == ["PENDING", *["RUNNING"] * 4, "SUCCEEDED", "SUCCEEDED"]
        _, run = create_run(server)
        ask(server, "POST", f"runs/{run['run_id']}:terminate")
        seen = [ask(server, "GET", f"runs/{run['run_id']}")[1]["state"] for _ in range(2)]
        assert seen == ["CANCELING", "FAILED"]
        assert ask(server, "POST", f"runs/{run['run_id']}:terminate")[0] == 400


def test_several_users() -> None:
    with kfp_server.serving(multi_user=True) as server:
        assert ask(server, "GET", "healthz")[1]["multi_user"] is True
        assert ask(server, "GET", "pipelines")[0] == 200  # those that all share
        assert ask(server, "GET", "runs")[0] == 400
        assert ask(server, "GET", "runs", namespace="team")[0] == 200
        status, body = ask(server, "GET", "runs", namespace="other")
        assert (status, body["code"]) == (403, 7)
        assert "User 'user@example.com' is not authorized" in body["message"]
        assert upload(server, yaml.safe_dump(TINY), name="x", namespace="other")[0] == 400
        assert create_run(server)[0] == 400  # there is no default experiment
        given = {"display_name": "e", "namespace": "team"}
        _, experiment = ask(server, "POST", "experiments", given)
        assert create_run(server, experiment_id=experiment["experiment_id"])[0] == 200
        server.access.user = None
        assert ask(server, "GET", "runs", namespace="team")[0] == 401
        known = {"kubeflow-userid": "user@example.com"}
        assert ask(server, "GET", "runs", None, known, namespace="team")[0] == 200


def test_faults_happen_as_often_as_asked() -> None:
    with kfp_server.serving() as server:
        server.fail("GET", "/runs$", status=503, body="upstream connect error", times=2)
        assert [ask(server, "GET", "runs")[0] for _ in range(3)] == [503, 503, 200]
        server.drop("/runs$")
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            ask(server, "GET", "runs")
        assert [(request.method, request.path) for request in server.requests] == [
            ("GET", "/apis/v2beta1/runs")
        ] * 4


def test_a_hanging_request_ends_with_the_server() -> None:
    before = threading.active_count()
    caught: list[BaseException] = []

    def wait() -> None:
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


def test_door() -> None:
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
def test_real_client_over_tls_with_a_token(tiny: pathlib.Path) -> None:
    with kfp_server.serving(tls=True) as server:
        server.require(token="t")
        client = connected(server, existing_token="t", ssl_ca_cert=server.certificate)
        assert client.upload_pipeline(str(tiny), "tiny").display_name == "tiny"
        assert server.requests[-1].file() == ("tiny.yaml", tiny.read_bytes())


def test_it_imports_neither_kfp_nor_tensorflow() -> None:
    code = "import sys, kfp_server; print({'kfp', 'tfx', 'tensorflow', 'keras'} & set(sys.modules))"
    fixtures = pathlib.Path(kfp_server.__file__).parents[1]
    paths = [str(fixtures), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "set()\n", done.stderr
