"""``stagecraft kubeflow pipelines``."""

import pytest

NAMES = ["with space, a+b, 100% and 50%41", 'say "it", it\'s back\\slash', "ünï a&b=c#d?"]


def uploads(server):
    return sum("/pipelines/upload" in request.path for request in server.requests)


def test_create_twice_uploads_once(server, ask, told, tiny):
    first = ask("pipelines", "create", tiny)
    assert first.exit_code == 0, first.output
    (pipeline,) = server.pipelines.values()
    lines = dict(line.split("  ", 1) for line in first.stdout.splitlines())
    lines = {key: value.strip() for key, value in lines.items()}
    assert lines == {
        "pipeline": "tiny, created",
        "version": "tiny",
        "ID": pipeline.id,
        "see": f"{server.url}/#/pipelines/details/{pipeline.id}",
        "start a run": "stagecraft kubeflow runs create tiny --watch",
    }
    assert pipeline.description == "says something"
    assert "tiny" in ask("pipelines", "create", tiny).stdout.splitlines()[0]
    again = told("pipelines", "create", tiny)
    assert again["changed"] is False and again["pipeline"]["id"] == pipeline.id
    assert again["version"]["name"] == "tiny"
    assert uploads(server) == 1


def test_create_does_not_change_another_one(server, ask, refused, uploaded, write):
    changed = write("changed.yaml", command="other")
    assert "upload" in refused("pipelines", "create", changed)
    assert uploads(server) == 1
    assert ask("pipelines", "update", changed).exit_code == 0
    assert ask("pipelines", "create", changed, "--name", "mine").exit_code == 0
    assert {row.name for row in server.pipelines.values()} == {"tiny", "mine"}


def test_update_twice_uploads_once(server, ask, told, uploaded, write):
    assert told("pipelines", "update", uploaded)["changed"] is False
    changed = write("changed.yaml", command="other")
    made = told("pipelines", "update", changed)
    assert made["changed"] is True and made["version"]["name"].startswith("tiny-20")
    assert "tiny, unchanged" in ask("pipelines", "update", changed).stdout
    assert uploads(server) == 2
    # An older version's content is a new version again.
    named = told("pipelines", "update", uploaded, "--version", "2.0")
    assert (named["changed"], named["version"]["name"]) == (True, "2.0")
    assert told("pipelines", "update", uploaded, "--version", "2.0")["changed"] is False
    taken = ask("pipelines", "update", changed, "--version", "2.0")
    assert taken.exit_code == 1 and "409" in taken.stderr
    assert len(server.versions) == 3


def test_update_needs_a_pipeline(server, refused, tiny):
    assert "creates" in refused("pipelines", "update", tiny)
    assert uploads(server) == 0


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_found_again(server, told, tiny, write, name):
    assert told("pipelines", "create", tiny, "--name", name)["pipeline"]["name"] == name
    assert told("pipelines", "create", tiny, "--name", name)["changed"] is False
    assert told("pipelines", "show", name)["name"] == name
    changed = write("changed.yaml", command="other")
    assert told("pipelines", "update", changed, "--name", name)["changed"] is True
    assert told("pipelines", "delete", name)["deleted"] is True
    assert not server.pipelines


def test_list_has_all_pages(server, ask, told, tiny):
    assert ask("pipelines", "list").stdout == "No pipelines.\n"
    assert told("pipelines", "list") == {"pipelines": []}
    assert ask("pipelines", "create", tiny).exit_code == 0
    (first,) = server.pipelines.values()
    for number in range(205):
        row = type(first)(f"id-{number:03}", f"p{number}", f"p{number}", "", "", server.clock.now())
        server.pipelines[row.id] = row
    listed = told("pipelines", "list")["pipelines"]
    assert [row["name"] for row in listed] == [f"p{204 - n}" for n in range(205)] + ["tiny"]
    assert listed[-1]["link"] == f"{server.url}/#/pipelines/details/{first.id}"
    head, newest, *rest = ask("pipelines", "list").stdout.splitlines()
    assert head.split() == ["NAME", "CREATED", "ID"] and len(rest) == 205
    assert newest.startswith("p204 ") and newest.endswith("id-204")


@pytest.mark.usefixtures("server")
def test_show(ask, told, refused, uploaded, write):
    ask("pipelines", "update", write("changed.yaml", command="other"), "--version", "second one")
    shown = told("pipelines", "show", "tiny")
    assert [row["name"] for row in shown["versions"]] == ["second one", "tiny"]
    assert shown["parameters"]["count"] == {"parameterType": "NUMBER_INTEGER", "defaultValue": 3}
    assert shown == told("pipelines", "show", shown["id"])
    text = ask("pipelines", "show", "tiny").stdout
    assert "says something" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["word", "text", "hello"] in rows
    assert ["loud", "true", "or", "false", "False"] in rows
    assert ["PARAMETER", "TYPE", "DEFAULT"] in rows
    assert "pipelines" in refused("pipelines", "show", "none")
    assert "pipelines" in refused("pipelines", "show", "0" * 8 + "-0000-4000-8000-" + "0" * 12)


def test_delete_takes_the_versions_first_and_is_done_once(server, ask, told, uploaded, write):
    ask("pipelines", "update", write("changed.yaml", command="other"), "--version", "second")
    server.requests.clear()
    assert ask("pipelines", "delete", "tiny").stdout == "tiny: deleted, with 2 version(s).\n"
    gone = [request.path for request in server.requests if request.method == "DELETE"]
    assert ["/versions/" in path for path in gone] == [True, True, False]
    assert not server.pipelines and not server.versions
    again = ask("pipelines", "delete", "tiny")
    assert again.exit_code == 0 and "nothing to delete" in again.stdout
    assert told("pipelines", "delete", "tiny") == {"deleted": False, "versions": []}


def test_somebody_else_deletes_at_the_same_time(server, told, tiny):
    told("pipelines", "create", tiny)
    server.fail("DELETE", "/versions/", status=404, body='{"code": 5, "message": "gone"}')
    server.fail("DELETE", r"/pipelines/[^/]*$", status=404, body='{"code": 5, "message": "gone"}')
    assert told("pipelines", "delete", "tiny") == {"deleted": True, "versions": ["tiny"]}


def test_a_preset_is_found_unchanged(server, told, preset, tmp_path):
    assert told("pipelines", "create", preset)["changed"] is True
    assert told("pipelines", "create", preset)["changed"] is False
    assert told("pipelines", "update", preset)["changed"] is False
    (version,) = server.versions.values()
    assert set(version.spec) == {"pipeline_spec", "platform_spec"}
    other = tmp_path / "other.txt"  # the server wants .yaml
    other.write_text(preset.read_text().replace("Always", "Never"))
    assert told("pipelines", "update", other)["changed"] is True
    assert "train_epochs" in told("pipelines", "show", "quickstart")["parameters"]


def test_somebody_else_creates_at_the_same_time(server, told, refused, tiny, write):
    """What a look before the upload did not find."""
    assert told("pipelines", "create", tiny)["changed"] is True
    nothing = server.fail("GET", "/pipelines$", status=200, body="{}")
    nothing.answer.headers["Content-Type"] = "application/json"  # type: ignore[union-attr]
    assert told("pipelines", "create", tiny)["changed"] is False
    nothing.times = 1
    other = write("other.yaml", command="other")
    assert "upload" in refused("pipelines", "create", other)
    nothing.times = 2
    assert "409" in told("pipelines", "create", tiny, code=1)["error"]


def test_pipelines_of_a_namespace_and_shared_ones(shared_server, told, refused, tiny):
    mine = told("pipelines", "create", tiny)["pipeline"]
    row = shared_server.pipelines[mine["id"]]
    assert row.namespace == "team"
    for name, namespace in (("tiny", ""), ("all", ""), ("theirs", "other")):
        new = type(row)(f"{name}-{namespace}", name, name, "", namespace, shared_server.clock.now())
        shared_server.pipelines[new.id] = new
    listed = [one["id"] for one in told("pipelines", "list")["pipelines"]]
    assert listed == [mine["id"], "all-", "tiny-"]
    assert told("pipelines", "show", "tiny")["id"] == mine["id"]
    assert told("pipelines", "show", "all")["id"] == "all-"
    # Deleted twice, it is not the shared one that goes.
    assert told("pipelines", "delete", "tiny")["deleted"] is True
    assert told("pipelines", "delete", "tiny")["deleted"] is False
    assert "tiny-" in shared_server.pipelines
    refused("pipelines", "update", tiny)
    assert told("pipelines", "create", tiny)["changed"] is True


def test_several_users_need_a_namespace(shared_server, command, tiny):
    done = command("pipelines", "create", tiny, "--endpoint", shared_server.url)
    assert done.exit_code == 1 and "--namespace" in done.stderr
    done = command("pipelines", "list", "--endpoint", shared_server.url, "-n", "foreign")
    assert done.exit_code == 1 and "403" in done.stderr
