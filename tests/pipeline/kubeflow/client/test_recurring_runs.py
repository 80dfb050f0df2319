"""The server that stands for Kubeflow Pipelines answers as the real one did.

``recurring-runs.jsonl`` has requests of one client and the answers of version 2.17, in order.
"""

import json
import urllib.parse

import kfp_server
import pytest
import two_steps
import yaml
from recordings import FOLDER

FILE = FOLDER / "runs" / "recurring-runs.jsonl"
PARAMETERS = {
    "train_epochs": {"parameterType": "NUMBER_DOUBLE", "defaultValue": 1},
    "parallel_strategy": {"parameterType": "STRING", "defaultValue": "one"},
}
OF_OTHERS = ("updated_at", "next_page_token")
"""Fields that depend on the controller's reports, or have no meaning for a client."""


def recorded():
    text, found, end = FILE.read_text(), [], 0
    while text[end:].strip():
        end += len(text[end:]) - len(text[end:].lstrip())
        exchange, end = json.JSONDecoder().raw_decode(text, end)
        found.append(exchange)
    return found


def known(value):
    """Without those fields; a token is there or not."""
    if isinstance(value, dict):
        return {key: bool(each) if key in OF_OTHERS else known(each) for key, each in value.items()}
    return [known(each) for each in value] if isinstance(value, list) else value


def renamed(rows, before, after):
    rows[after] = rows.pop(before)
    rows[after].id = after


@pytest.mark.skipif(not FILE.exists(), reason="no recordings: set STAGECRAFT_KUBEFLOW to a folder")
def test_recordings():
    exchanges = recorded()
    first = exchanges[0]["body"]
    with kfp_server.serving("2.17") as server:
        kfp_server.upload(server, yaml.safe_dump(two_steps.pipeline(PARAMETERS)), name="tiny")
        kfp_server.ask(server, "POST", "experiments", {"display_name": "e"})
        # The ids of the recording, and its times.
        reference = first["pipeline_version_reference"]
        for rows, name in (
            (server.pipelines, reference["pipeline_id"]),
            (server.versions, reference["pipeline_version_id"]),
            (server.experiments, first["experiment_id"]),
        ):
            (made,) = rows
            renamed(rows, made, name)
        server.versions[reference["pipeline_version_id"]].pipeline_id = reference["pipeline_id"]
        statuses = []
        for exchange in exchanges:
            parts = urllib.parse.urlsplit(exchange["path"])
            path = parts.path.removeprefix("/apis/v2beta1/")
            if path == "runs":
                continue
            query = dict(urllib.parse.parse_qsl(parts.query))
            status, answer = kfp_server.ask(
                server, exchange["method"], path, exchange["body"], **query
            )
            expected = exchange["answer"]
            if status == 200 and exchange["name"].startswith("create-"):
                renamed(
                    server.recurring_runs, answer["recurring_run_id"], expected["recurring_run_id"]
                )
                row = server.recurring_runs[expected["recurring_run_id"]]
                created = kfp_server.seconds(expected["created_at"])
                row.created_at = created
                answer |= {key: expected[key] for key in ("recurring_run_id", "created_at")}
            assert (status, known(answer)) == (exchange["status"], known(expected)), exchange
            statuses.append(status)
        assert {200, 400, 404} == set(statuses) and len(statuses) == len(exchanges) - 1

        # The run that the schedule of every minute started.
        (listing,) = [each for each in exchanges if each["name"] == "runs-of-schedule"]
        expected = listing["answer"]["runs"][0]
        run = server.start_scheduled(expected["recurring_run_id"])
        run.begin()
        _, answer = kfp_server.ask(server, "GET", f"runs/{run.id}")
        assert set(answer) == set(expected)
        same = ("experiment_id", "pipeline_version_reference", "runtime_config", "state",
                "recurring_run_id", "storage_state", "finished_at")  # fmt: skip
        assert {key: answer[key] for key in same} == {key: expected[key] for key in same}
