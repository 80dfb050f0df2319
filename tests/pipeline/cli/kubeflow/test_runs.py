"""``stagecraft kubeflow runs create|list|show|terminate|delete``."""

import copy

import pytest
from kfp_server import end, finish, start, whole

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.usefixtures("uploaded")
def test_create(server, ask, told):
    done = ask("runs", "create", "tiny")
    assert done.exit_code == 0, done.output
    run = server.run()
    lines = {line[:8].strip(): line[8:].strip() for line in done.stdout.splitlines()}
    assert lines["ID"] == run.id and lines["see"] == f"{server.url}/#/runs/details/{run.id}"
    assert lines["run"] == run.display_name and run.display_name.startswith("tiny 20")
    assert run.runtime_config["parameters"] == {"word": "hello", "count": 3, "loud": False}
    assert run.runtime_config["pipeline_root"] == "minio://bucket/base", "the file's own"
    (experiment,) = server.experiments.values()
    assert experiment.name == "tiny"
    words = ("--experiment", "e", "--name", "n", "--pipeline-root", "minio://b/r")
    made = told("runs", "create", "tiny", *words, "--service-account", "me")
    assert made["changed"] is True and (made["name"], made["state"]) == ("n", "PENDING")
    run = server.run(made["id"])
    assert (run.service_account, run.runtime_config["pipeline_root"]) == ("me", "minio://b/r")
    assert made["pipeline_id"] in server.pipelines and made["version_id"] in server.versions
    assert server.experiments[run.experiment_id].name == "e"


@pytest.mark.usefixtures("uploaded")
def test_parameters_have_types(server, told, refused):
    words = ("-p", "word=3", "-p", "count=-7", "--parameter", "loud=true")
    told("runs", "create", "tiny", *words)
    values = server.run().runtime_config["parameters"]
    assert values == {"word": "3", "count": -7, "loud": True}
    told("runs", "create", "tiny", "-p", "word=a=b, 'c'", "-p", "loud=False")
    assert server.run().runtime_config["parameters"]["word"] == "a=b, 'c'"
    for word in ("count=many", "count=true", "loud=1", "louder=1", "loud", "count=[1", "count=1.5"):
        assert word.partition("=")[0] in refused("runs", "create", "tiny", "-p", word)
    assert len(server.runs) == 2


@pytest.mark.usefixtures("server")
def test_a_parameter_without_a_default(ask, told, refused, write):
    path = write()
    path.write_text(path.read_text().replace("defaultValue: hello", "description: greeting"))
    assert ask("pipelines", "create", path).exit_code == 0
    assert "word" in refused("runs", "create", "tiny")
    assert told("runs", "create", "tiny", "-p", "word=")["changed"] is True


@pytest.mark.usefixtures("uploaded")
def test_versions(server, ask, told, refused, write):
    ask("pipelines", "update", write("b.yaml", command="b"), "--version", "v 2")
    by_name = {row.name: row.id for row in server.versions.values()}
    assert told("runs", "create", "tiny")["version_id"] == by_name["v 2"]
    assert told("runs", "create", "tiny", "--version", "tiny")["version_id"] == by_name["tiny"]
    by_id = told("runs", "create", "tiny", "--version", by_name["tiny"])
    assert by_id["version_id"] == by_name["tiny"]
    assert "versions" in refused("runs", "create", "tiny", "--version", "3")
    assert "huge" in refused("runs", "create", "huge")


@pytest.mark.usefixtures("uploaded")
def test_once(server, ask, told, refused, write):
    words = ("runs", "create", "tiny", "--name", "nightly 1+1", "--once")
    first = told(*words)
    again = told(*words)
    assert (first["changed"], again["changed"]) == (True, False)
    assert again["id"] == first["id"] and len(server.runs) == 1
    assert "run       nightly 1+1, exists already" in ask(*words).stdout
    # Another experiment or version is another run.
    assert told(*words, "--experiment", "e")["changed"] is True
    ask("pipelines", "update", write("b.yaml", command="b"))
    assert told(*words)["changed"] is True
    assert told(*words[:-1])["changed"] is True
    assert len(server.runs) == 4
    assert "--once" in refused("runs", "create", "tiny", "--once")


@pytest.mark.parametrize("name", ["with space", "a+b", "50%41", 'say "it"', "back\\slash"])
@pytest.mark.usefixtures("uploaded")
def test_any_experiment_is_found_again(server, told, name):
    for number in ("1", "2"):
        told("runs", "create", "tiny", "--experiment", name, "--name", number)
    told("runs", "create", "tiny")
    assert sorted(row.name for row in server.experiments.values()) == sorted([name, "tiny"])
    listed = told("runs", "list", "--experiment", name)["runs"]
    assert [run["name"] for run in listed] == ["2", "1"]


@pytest.mark.usefixtures("uploaded")
def test_list(server, ask, told, refused):
    assert ask("runs", "list").stdout == "No runs.\n"
    for number in range(3):
        told("runs", "create", "tiny", "--name", f"r{number}")
    for number in range(3, 130):
        run = copy.copy(server.run())
        run.id, run.display_name, run.created_at = f"id{number}", f"r{number}", server.clock.now()
        server.runs[run.id] = run
    assert [run["name"] for run in told("runs", "list")["runs"]] == [
        f"r{number}" for number in range(129, 109, -1)
    ]
    assert [run["name"] for run in told("runs", "list", "--limit", 125)["runs"]][-1] == "r5"
    server.run("id129").state = "FAILED"
    head, first, *rest = ask("runs", "list", "--limit", 2).stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "CREATED", "ID"] and len(rest) == 1
    assert first.split()[:2] == ["r129", "FAILED"] and first.endswith("id129")
    refused("runs", "list", "--experiment", "none")


@pytest.mark.usefixtures("uploaded")
def test_show(server, ask, told, refused):
    server.play(*whole("say", "after"))
    made = told("runs", "create", "tiny")
    shown = told("runs", "show", made["id"])
    assert (shown["state"], shown["finished"]) == ("PENDING", None)
    assert {name: step["state"] for name, step in shown["steps"].items()} == {
        "say": "waiting",
        "after": "waiting",
    }
    assert shown["parameters"] == {"word": "hello", "count": 3, "loud": False}
    for _ in range(4):
        told("runs", "show", made["id"])
    shown = told("runs", "show", made["id"])
    assert shown["state"] == "SUCCEEDED" and shown["finished"] > shown["created"]
    assert list(shown["steps"]) == ["say", "after"]
    assert {step["state"] for step in shown["steps"].values()} == {"done"}
    rows = [line.split() for line in ask("runs", "show", made["id"]).stdout.splitlines()]
    assert ["state", "SUCCEEDED"] in rows and ["PARAMETER", "VALUE"] in rows
    assert ["say", "done"] in [row[:2] for row in rows] and ["count", "3"] in rows
    refused("runs", "show", NOBODY)


@pytest.mark.usefixtures("uploaded")
def test_a_run_whose_pipeline_is_gone(server, told):
    server.play(start("say"), finish("say"), end())
    made = told("runs", "create", "tiny", "--watch")
    assert told("pipelines", "delete", "tiny")["deleted"] is True
    assert list(told("runs", "show", made["id"])["steps"]) == ["say"]


@pytest.mark.usefixtures("uploaded")
def test_terminate(server, ask, told, refused):
    made = told("runs", "create", "tiny", "--name", "mine")
    assert ask("runs", "terminate", made["id"]).stdout == "mine: stopping.\n"
    assert server.run().state == "CANCELING"
    again = ask("runs", "terminate", made["id"])
    assert (again.exit_code, again.stdout) == (0, "mine: is stopping already.\n")
    server.run().begin()  # as the agent tells of pods that end
    server.run().end("FAILED")
    over = ask("runs", "terminate", made["id"])
    assert (over.exit_code, over.stdout) == (0, "mine: is over already (FAILED).\n")
    assert told("runs", "terminate", made["id"]) == {"terminated": False, "state": "FAILED"}
    shown = told("runs", "show", made["id"])
    assert (shown["state"], shown["stopped"]) == ("FAILED", True)
    lines = ask("runs", "show", made["id"]).stdout.splitlines()
    assert sum("FAILED" in line for line in lines) == 1
    assert "runs list" in refused("runs", "terminate", NOBODY)


@pytest.mark.usefixtures("uploaded")
def test_a_run_that_ends_before_it_is_terminated(server, told):
    """Between the look and the request."""
    server.play(end())
    made = told("runs", "create", "tiny")
    assert told("runs", "terminate", made["id"]) == {"terminated": False, "state": "SUCCEEDED"}


@pytest.mark.usefixtures("uploaded")
def test_delete(server, ask, told):
    made = told("runs", "create", "tiny")
    assert ask("runs", "delete", made["id"]).stdout == f"{made['id']}: deleted.\n"
    assert not server.runs
    again = ask("runs", "delete", made["id"])
    assert again.exit_code == 0 and "nothing to delete" in again.stdout
    assert told("runs", "delete", made["id"]) == {"deleted": False}


def test_runs_of_a_namespace(shared_server, ask, told, command, uploaded):
    words = ("runs", "create", "tiny", "--name", "n", "--once")
    first = told(*words)
    assert told(*words)["changed"] is False
    assert shared_server.run().namespace == "team"
    assert [run["id"] for run in told("runs", "list")["runs"]] == [first["id"]]
    # A run's ID is enough to look at it, to stop and to delete it.
    at = ("--endpoint", shared_server.url)
    for verb in ("show", "terminate", "delete"):
        assert command("runs", verb, first["id"], *at).exit_code == 0
    failed = told("runs", "create", "tiny")["id"]
    shared_server.run(failed).finish("say", "FAILED")
    assert command("runs", "show", failed, *at).exit_code == 0
    foreign = command("runs", "list", *at, "-n", "foreign")
    assert foreign.exit_code == 1 and "403" in foreign.stderr
    nobody = command("runs", "list", *at)
    assert nobody.exit_code == 1 and "--namespace" in nobody.stderr
