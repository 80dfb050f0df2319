"""The server that stands for Kubeflow Pipelines: runs and their tasks."""

import kfp_server
import pytest
from kfp_server import ask


def states(run):
    return {task["display_name"]: task.get("state") for task in run["run_details"]["task_details"]}


def test_only_the_newer_gateway_refuses_unknown_fields(create_run):
    for version, status in (("2.5", 200), ("2.16", 400)):
        with kfp_server.serving(version) as server:
            assert create_run(server, color="red")[0] == status


def test_tasks_as_argo_has_them(create_run):
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


def test_what_a_failure_leaves_out_has_no_state(create_run):
    with kfp_server.serving() as server:
        create_run(server)
        server.run().finish("say", "FAILED")
        server.run().end("FAILED")
        _, got = ask(server, "GET", f"runs/{server.run().id}")
        assert states(got)["say"] == "FAILED"
        assert states(got)["after-driver"] is None


def test_each_poll_is_a_step(create_run):
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
