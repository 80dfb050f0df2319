"""The server that stands for Kubeflow Pipelines: pipelines and their versions."""

import json
import pathlib
import subprocess
import sys

import kfp_server
import pytest
import two_steps
import yaml
from kfp_server import ask, upload

TINY = two_steps.pipeline()
PLATFORM = {
    "platforms": {
        "kubernetes": {"deploymentSpec": {"executors": {"exec-say": {"imagePullPolicy": "Always"}}}}
    }
}
BOTH = pytest.mark.parametrize("version", ["2.5", "2.16"])


@BOTH
@pytest.mark.usefixtures("quiet")
def test_real_client_from_upload_to_deletion(tiny, connected, version):
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
def test_real_client_gets_pages(tiny, connected):
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


def test_pages_have_twenty_rows_unless_asked_otherwise(create_run):
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
def test_names_are_taken_once(tiny, version, connected):
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
def test_a_file_that_is_refused(version, status, told):
    with kfp_server.serving(version) as server:
        got, body = upload(server, yaml.safe_dump({**TINY, "schemaVersion": "2.0.0"}), name="x")
        assert got == status
        assert ("2.1.0" in body["error_message"]) == told
        assert not server.pipelines


def test_2_0_calls_a_name_that_is_taken_its_own_fault():
    with kfp_server.serving("2.0") as server:
        upload(server, yaml.safe_dump(TINY), name="x")
        status, body = upload(server, yaml.safe_dump(TINY), name="x")
        assert status == 500 and "already exists" in body["error_message"]


@BOTH
def test_what_is_not_there(create_run, version):
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


@BOTH
def test_pipelines_with_versions_stay(version):
    with kfp_server.serving(version) as server:
        _, pipeline = upload(server, yaml.safe_dump(TINY), name="x")
        assert ("name" in pipeline) == (version == "2.16")
        path = f"pipelines/{pipeline['pipeline_id']}"
        status, body = ask(server, "DELETE", path)
        assert status == 400
        assert ("cascade=true" in body["message"]) == (version == "2.16")
        status, _ = ask(server, "DELETE", path, cascade="true")
        assert (status, len(server.versions)) == ((200, 0) if version == "2.16" else (400, 1))


def test_a_platform_document_comes_back_beside_the_pipeline(create_run):
    with kfp_server.serving() as server:
        _, pipeline = upload(server, yaml.safe_dump_all([TINY, PLATFORM]), name="x")
        _, page = ask(server, "GET", f"pipelines/{pipeline['pipeline_id']}/versions")
        spec = page["pipeline_versions"][0]["pipeline_spec"]
        assert spec == {"pipeline_spec": TINY, "platform_spec": PLATFORM}
        status, run = create_run(server, spec)
        assert (status, run["pipeline_spec"]) == (200, spec)


def test_it_imports_neither_kfp_nor_tensorflow():
    code = "import sys, kfp_server; print({'kfp', 'tfx', 'tensorflow', 'keras'} & set(sys.modules))"
    fixtures = pathlib.Path(kfp_server.__file__).parents[1]
    paths = [str(fixtures), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "set()\n", done.stderr
