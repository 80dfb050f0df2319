"""``stagecraft kubeflow schedule create|list|pause|resume|delete``."""

import dataclasses

import pytest
from kfp_server import cron

from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.kubeflow.client import schedules

CREATE = ("schedule", "create", "tiny")
DAILY = (*CREATE, "--cron", "0 6 * * *")


def rows(server):
    return list(server.recurring_runs.values())


@pytest.mark.usefixtures("uploaded")
def test_create(server, ask, told):
    done = ask(*DAILY, "--parameter", "count=4")
    assert done.exit_code == 0, done.output
    (row,) = rows(server)
    assert row.trigger == {"cron_schedule": {"cron": "0 0 6 * * *"}}
    assert (row.display_name, row.enabled) == ("tiny", True)
    assert (row.max_concurrency, row.no_catchup) == (1, True), "no overlap, no catch-up"
    assert row.runtime_config == {
        "parameters": {"word": "hello", "count": 4, "loud": False},
        "pipeline_root": "minio://bucket/base",
    }
    (version,) = server.versions.values()
    assert row.reference["pipeline_version_id"] == version.id
    (experiment,) = server.experiments.values()
    assert (row.experiment_id, experiment.name) == (experiment.id, "tiny")
    lines = {line[:10].strip(): line[10:].strip() for line in done.stdout.splitlines()}
    assert lines["when"].startswith("0 0 6 * * * ("), "what is sent, and why it differs"
    assert lines["see"] == f"{server.url}/#/recurringrun/details/{row.id}"
    again = told(*DAILY, "-p", "count=4")
    assert (again["id"], again["changed"]) == (row.id, False)


@pytest.mark.usefixtures("uploaded")
def test_create_with_an_interval(server, told):
    words = ("--interval", 3600, "--start", "2026-12-01T06:00:00+01:00", "--end", "2099-01-01")
    more = ("--name", "hourly", "--paused", "--catch-up", "--experiment", "e")
    more += ("--service-account", "me", "--pipeline-root", "minio://b/r")
    made = told(*CREATE, *words, *more)
    (row,) = rows(server)
    assert row.trigger == {
        "periodic_schedule": {
            "interval_second": "3600",
            "start_time": "2026-12-01T05:00:00Z",
            "end_time": "2099-01-01T00:00:00Z",
        }
    }
    assert (row.display_name, row.enabled, row.no_catchup) == ("hourly", False, False)
    assert (row.service_account, row.runtime_config["pipeline_root"]) == ("me", "minio://b/r")
    assert server.experiments[row.experiment_id].name == "e"
    assert (made["state"], made["interval_seconds"], made["catch_up"]) == ("paused", 3600, True)
    assert told(*CREATE, *words, *more)["changed"] is False


@pytest.mark.usefixtures("uploaded")
def test_replace(server, ask, told, refused, write):
    first = told(*DAILY)["id"]
    assert first in refused(*DAILY, "-p", "count=5"), "another value"
    ask("pipelines", "update", write("b.yaml", command="b"), "--version", "2")
    assert first in refused(*DAILY), "another version"
    assert told("schedule", "pause", "tiny")["changed"] is True
    second = told(*DAILY, "--replace")
    (row,) = rows(server)
    assert row.id == second["id"] != first
    assert (second["changed"], second["state"]) == (True, "paused"), "as the one before"
    assert server.versions[row.reference["pipeline_version_id"]].name == "2"
    assert told(*DAILY, "--replace")["changed"] is False
    # If the new one is refused, the old one stays.
    refused(*CREATE, "--cron", "0 0 25 * * *", "--replace")
    assert [row.id for row in rows(server)] == [second["id"]]


@pytest.mark.usefixtures("uploaded")
@pytest.mark.parametrize(
    ("option", "value"),
    [("--service-account", "me"), ("--pipeline-root", "minio://b/r"), ("--experiment", "e")],
)
def test_replace_by_another_option(server, told, refused, option, value):
    first = told(*DAILY)["id"]
    assert first in refused(*DAILY, option, value)
    made = told(*DAILY, option, value, "--replace")
    assert (made["changed"], [row.id for row in rows(server)]) == (True, [made["id"]])
    assert told(*DAILY, option, value, "--replace")["changed"] is False


@pytest.mark.usefixtures("uploaded")
def test_an_equal_schedule_is_paused(server, told):
    first = told(*DAILY)["id"]
    made = told(*DAILY, "--paused")
    assert (made["id"], made["state"], made["changed"]) == (first, "paused", True)
    assert [row.enabled for row in rows(server)] == [False]
    assert told(*DAILY, "--paused")["changed"] is False


@pytest.mark.usefixtures("uploaded")
def test_a_replacement_that_failed_half_way_is_repeated(server, told, refused, monkeypatch):
    """The new schedule exists, but the old one was not deleted."""
    first = told(*DAILY)["id"]

    def failing(api, schedule):
        raise UserError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "delete", failing)
        refused(*DAILY, "-p", "count=5", "--replace")
    assert len(rows(server)) == 2
    made = told(*DAILY, "-p", "count=5", "--replace")
    assert (made["changed"], [row.id for row in rows(server)]) == (True, [made["id"]])
    assert made["id"] != first


@pytest.mark.usefixtures("uploaded")
def test_list(server, ask, told):
    assert ask("schedule", "list").stdout == "No schedules.\n"
    told(*DAILY, "--name", "s0")
    (row,) = rows(server)
    for number in range(1, 120):
        other = dataclasses.replace(
            row, id=f"id{number}", display_name=f"s{number}", created_at=server.clock.now()
        )
        server.recurring_runs[other.id] = other
    told(*CREATE, "--interval", 5400, "--name", "often")
    listed = told("schedule", "list")["schedules"]
    assert [each["name"] for each in listed] == [*(f"s{number}" for number in range(120)), "often"]
    assert (listed[0]["cron"], listed[0]["state"]) == ("0 0 6 * * *", "active")
    head, first, *_, last = ask("schedule", "list").stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "WHEN", "PIPELINE", "ID"]
    assert first.split()[:2] == ["s0", "active"] and first.split()[-2] == "tiny"
    assert "every 1 h 30 min" in last


@pytest.mark.usefixtures("uploaded")
def test_pause_resume_delete(server, ask, told, refused):
    made = told(*DAILY)
    assert ask("schedule", "pause", "tiny").stdout == "tiny: paused.\n"
    assert [row.enabled for row in rows(server)] == [False]
    assert told("schedule", "pause", made["id"])["changed"] is False
    assert ask("schedule", "resume", "tiny").stdout == "tiny: active.\n"
    assert [row.enabled for row in rows(server)] == [True]
    run = server.start_scheduled(made["id"])
    assert told("runs", "show", run.id)["schedule_id"] == made["id"]
    told(*DAILY, "--name", "other")
    for verb in ("pause", "resume", "delete"):
        error = refused("schedule", verb, "daily")
        assert "tiny" in error and "other" in error, "those that exist"
    assert told("schedule", "delete", "tiny") == {"id": made["id"], "deleted": True}
    assert [row.display_name for row in rows(server)] == ["other"]


@pytest.mark.usefixtures("uploaded")
def test_two_schedules_of_a_name(server, told, refused):
    """The server permits them, for example from its user interface."""
    first = told(*DAILY)["id"]
    second = told(*DAILY, "--name", "2")["id"]
    server.recurring_runs[second].display_name = "tiny"
    error = refused("schedule", "pause", "tiny")
    assert first in error and second in error
    assert told("schedule", "pause", second)["changed"] is True
    assert [row.enabled for row in rows(server)] == [True, False]


@pytest.mark.usefixtures("uploaded")
def test_refusals(server, refused):
    error = refused(*DAILY, "-p", "epochs=2")
    assert "epochs" in error and "count, loud, word" in error, "the parameters that exist"
    for text in ("every day", "* * * *", "0 0 0 6 * * *"):
        assert "second, minute, hour" in refused(*CREATE, "--cron", text), "locally"
    for text in ("0 25 * * *", "0 6 * * 7", "@often"):
        assert "second, minute, hour" in refused(*CREATE, "--cron", text), "by the server"
    for words in ((), ("--cron", "@daily", "--interval", 5)):
        assert "--interval" in refused(*CREATE, *words)
    assert "--start" in refused(*DAILY, "--start", "soon")
    assert "--end" in refused(*DAILY, "--start", "2098-12-01", "--end", "2098-12-01")
    assert "--end" in refused(*DAILY, "--end", "2020-01-01"), "it would never run"
    assert not server.recurring_runs


def test_schedules_of_a_namespace(shared_server, told, command, uploaded):
    told(*DAILY)
    (row,) = rows(shared_server)
    assert row.namespace == "team"
    assert [each["name"] for each in told("schedule", "list")["schedules"]] == ["tiny"]
    foreign = command("schedule", "list", "--endpoint", shared_server.url, "-n", "foreign")
    assert foreign.exit_code == 1 and "403" in foreign.stderr


def test_errors_have_fields(server):
    with pytest.raises(SettingError) as caught:
        schedules.six_fields("every day")
    assert (caught.value.setting, caught.value.suggestion) == ("--cron", schedules.CRON)
    with pytest.raises(SettingError) as caught:
        schedules.moment("--start", "soon")
    assert (caught.value.setting, caught.value.value) == ("--start", "soon")
    from stagecraft.pipeline.kubeflow.client.api import Api
    from stagecraft.pipeline.kubeflow.client.connection import resolve

    with pytest.raises(UserError) as unknown:
        schedules.get(Api(resolve({"endpoint": server.url})), "daily")
    assert (unknown.value.value, unknown.value.suggestion) == ("daily", "none")


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("0 6 * * *", "0 0 6 * * *"),
        (" */5  * * * MON-FRI", "0 */5 * * * MON-FRI"),
        ("30 0 6 1,15 * ?", "30 0 6 1,15 * ?"),
        ("@every 1h30m", "@every 1h30m"),
    ],
)
def test_what_is_sent(text, sent):
    assert schedules.six_fields(text) == sent
    cron.check(sent)
