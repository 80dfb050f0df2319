"""``stagecraft report``: the page, its file name and its errors."""

import json
import pathlib

import pytest
from past_runs import Output, State

CAUSE = "data.source: /gone: no such file"


@pytest.fixture
def run(tmp_path):
    """The folder of two runs: a killed one, and one that failed."""
    output = Output(tmp_path / "runs" / "quickstart")
    cause = json.dumps({"resultMessage": CAUSE})
    for name, state, result in (("first", State.RUNNING, ""), ("second", State.FAILED, cause)):
        result = {"__execution_result__": result} if result else {}
        output.step(output.begin(name), "Cifar10ExampleGen", state, **result)
    (output.folder / "logs").mkdir()
    (output.folder / "logs" / "20260102-030405.log").write_text("quickstart: run second\n")
    return output.folder


def test_the_newest_run(stagecraft, run):
    ran = stagecraft("report", str(run), "--json")
    assert ran.code == 0
    assert ran.last_line == {
        "run_id": "second",
        "report": str(run / "report.html"),
        "metrics": {},
        "blessed": False,
        "pushed": None,
    }
    text = (run / "report.html").read_text()
    assert "run second" in text
    assert "<h1>Cifar10ExampleGen failed</h1>" in text
    assert f"{CAUSE}</p>" in text
    assert "logs/20260102-030405.log</code>" in text
    verdict = f"verdict  Cifar10ExampleGen failed: {CAUSE}."
    assert verdict in stagecraft("report", str(run)).stdout.splitlines()


def test_an_older_run_does_not_take_the_newest_ones_place(stagecraft, run, tmp_path):
    stagecraft("report", str(run))
    ran = stagecraft("report", "fir")  # below runs/, cut short
    assert ran.code == 0
    page = pathlib.Path("runs", "quickstart", "report-first.html")
    assert f"report   {page}" in ran.stdout.splitlines()
    assert "run first" in (tmp_path / page).read_text()
    assert "run second" in (run / "report.html").read_text()


def test_a_run_that_was_killed_was_stopped(stagecraft, run, tmp_path):
    page = tmp_path / "a.html"
    ran = stagecraft("report", f"{run}@first", "--output", str(page))
    assert f"report   {page}" in ran.stdout.splitlines()
    assert "Cifar10ExampleGen was stopped." in ran.stdout
    assert "<h1>Cifar10ExampleGen was stopped</h1>" in page.read_text()
    assert "Log: <code>" not in page.read_text()  # no log says that it is this run's


def test_errors(refused, run, tmp_path):
    for name, said in (
        ("runs/quickstart@third", "second, first"),
        ("quickstrat", "stagecraft history"),
        ("runs", "metadata.db"),
    ):
        assert said in refused("report", name)
    assert "page.html" in refused("report", "runs/quickstart", "--output", "runs/no/such/page.html")
