"""The server that stands for Kubeflow Pipelines: pipelines and their versions."""

import kfp_server
import pytest
import two_steps
import yaml
from kfp_server import ask, upload

TINY = two_steps.pipeline()
BOTH = pytest.mark.parametrize("version", ["2.5", "2.16"])


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
def test_a_file_that_is_refused(version):
    with kfp_server.serving(version) as server:
        status, body = upload(server, yaml.safe_dump({**TINY, "schemaVersion": "2.0.0"}), name="x")
        assert status == 500
        assert ("2.1.0" in body["error_message"]) == (version == "2.5")
        assert not server.pipelines


@BOTH
def test_what_is_not_there(create_run, version):
    with kfp_server.serving(version) as server:
        for path in ("pipelines/x", "pipelines/x/versions/y", "runs/x"):
            status, body = ask(server, "GET", path)
            assert (status, body["code"]) == (404, 5), path
            assert ("error" in body) == (version == "2.5")
        assert ask(server, "GET", "jobs")[0] == 404
        # Neither of these is 404.
        assert upload(server, yaml.safe_dump(TINY), "upload_version", pipelineid="x")[0] == 400
        reference = {"pipeline_id": "x", "pipeline_version_id": "y"}
        status, body = create_run(server, pipeline_version_reference=reference)
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
