"""``stagecraft kubeflow runs watch``, and ``runs create --watch``."""

import os
import signal
import subprocess
import sys

import pytest
from kfp_server import end, finish, start, whole

pytestmark = pytest.mark.usefixtures("uploaded")


def steps(told):
    return {name: step["state"] for name, step in told["steps"].items()}


def test_success(server, ask, told):
    server.play(*whole("say", "after"))
    done = ask("runs", "create", "tiny", "--watch")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    begun = lines.index("say: running")
    assert lines[begun + 1].startswith("say: done, ")
    assert lines[begun + 2] == "after: running"
    assert lines[begun + 3].startswith("after: done, ")
    assert lines[begun + 4].split() == ["state", "SUCCEEDED"]
    assert not any("watch it" in line for line in lines)
    made = told("runs", "create", "tiny", "--watch")
    assert (made["state"], steps(made)) == ("SUCCEEDED", {"say": "done", "after": "done"})
    told_again = told("runs", "watch", made["id"])
    assert told_again == made


def test_failure_names_the_step_and_its_log(server, ask, told, messages):
    server.play(start("say"), finish("say", "FAILED"), end("FAILED"))
    done = ask("runs", "create", "tiny", "--watch")
    run = server.run().id
    assert done.exit_code == 1
    assert "say: failed" in done.stdout and "state  FAILED" in done.stdout
    assert "Error: say: failed" in done.stderr
    assert f"runs logs {run} --step say" in done.stderr
    (log,) = (line for line in done.stderr.splitlines() if "its log" in line)
    messages.check(log.replace(run, "RUN"))
    made = told("runs", "watch", run, code=1)
    assert steps(made) == {"say": "failed", "after": "skipped"}


def test_cached_and_skipped_steps(server, ask):
    server.play(finish("say", cached=True), finish("after", "SKIPPED"), end())
    done = ask("runs", "create", "tiny", "--watch")
    assert done.exit_code == 0, done.output
    assert "say: cached" in done.stdout and "after: skipped" in done.stdout
    assert "running" not in done.stdout


def test_attach_in_the_middle(server, ask, told):
    run = told("runs", "create", "tiny")["id"]
    server.run().start("say")
    server.run().finish("say")
    server.run().start("after")
    server.run().play(start("after"), finish("after"), end())
    done = ask("runs", "watch", run)
    assert done.exit_code == 0, done.output
    states = [line.split(",")[0] for line in done.stdout.splitlines()[:3]]
    assert states == ["say: done", "after: running", "after: done"]


@pytest.mark.parametrize("kind", ["503", "429", "drop", "html"])
def test_hiccups_of_the_server(server, ask, told, kind):
    run = told("runs", "create", "tiny")["id"]

    def hiccup(run):
        path = "/runs/"
        if kind == "drop":
            server.drop(path, times=2)
        elif kind == "html":
            body = "<html>502 Bad Gateway</html>"
            server.fail("GET", path, status=502, body=body, content_type="text/html", times=2)
        else:
            server.fail("GET", path, status=int(kind), body="upstream is away", times=2)

    server.run().play(start("say"), hiccup, *whole("say", "after")[1:])
    done = ask("runs", "watch", run)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("Trying again.") == 2
    assert done.stdout.count("say: running") == done.stdout.count("say: done") == 1
    quiet = ask("runs", "watch", run, "--json")
    assert quiet.stdout.count("\n") == 1


def test_a_hiccup_at_the_very_beginning(server, ask, told):
    server.play(*whole("say", "after"))
    run = told("runs", "create", "tiny")["id"]
    server.drop("/runs/", times=1)
    assert ask("runs", "watch", run).exit_code == 0


def test_patience_has_an_end(server, ask, told, monkeypatch):
    from stagecraft.pipeline.kubeflow.client import follow

    run = told("runs", "create", "tiny")["id"]
    monkeypatch.setattr(follow, "PATIENCE_SECONDS", 0.05)
    server.fail("GET", "/runs/", status=503, body="away", times=None)
    done = ask("runs", "watch", run)
    assert done.exit_code == 1 and "503: away." in done.stderr


def test_a_run_that_is_deleted_meanwhile(server, ask, told):
    run = told("runs", "create", "tiny")["id"]
    server.run().play(start("say"), lambda run: server.runs.clear())
    done = ask("runs", "watch", run)
    assert done.exit_code == 1 and f"{run}: " in done.stderr


def test_a_step_that_was_stopped_did_not_fail(server, ask, told, messages):
    """Argo calls its pod failed."""
    run = told("runs", "create", "tiny", "--name", "mine")["id"]
    stop = [start("say"), lambda run: (run.terminate(), run.begin())]
    server.run().play(*stop, finish("say", "FAILED"), end("FAILED"))
    done = ask("runs", "watch", run)
    assert done.exit_code == 1
    assert "say: interrupted" in done.stdout and "runs logs" not in done.stderr
    assert "it was stopped" in done.stderr
    (state,) = (line for line in done.stdout.splitlines() if line.startswith("state"))
    messages.check(state)
    assert steps(told("runs", "show", run))["say"] == "interrupted"


def test_interrupted(server, ask, told):
    run = told("runs", "create", "tiny")["id"]

    def interrupt(run):
        os.kill(os.getpid(), signal.SIGINT)

    server.run().play(start("say"), interrupt, finish("say"), *whole("after"))
    done = ask("runs", "watch", run)
    assert done.exit_code == 130
    assert "Traceback" not in done.output
    assert not any(request.path.endswith(":terminate") for request in server.requests)
    assert ask("runs", "watch", run).exit_code == 0


@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_a_real_process(server, told, messages):
    """What it prints, from the first import to Ctrl-C."""
    run = told("runs", "create", "tiny")["id"]
    server.run().start("say")
    main = "from stagecraft.pipeline.cli.main import main; main()"
    words = ["kubeflow", "runs", "watch", run, "--endpoint", server.url]
    process = subprocess.Popen(
        [sys.executable, "-c", main, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "say: running\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
        said = process.stderr.read()
        assert said.endswith(f"runs watch {run}\n")
        messages.check(said.replace(run, "RUN"))
    assert server.run().state == "RUNNING"
