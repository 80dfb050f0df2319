"""``stagecraft run --spans``, and the window of a run, with a worker that only pretends."""

from __future__ import annotations

import json
import pathlib
import shlex

import pytest
from past_runs import Output

from stagecraft.pipeline.local.span_runs import GATE, SpanRuns
from stagecraft.pipeline.settings import load

SETTINGS = """
name: mine
task: {name: regression, args: {features: {a: numeric}, label: b}}
train: {model: dnn_16}
data:
  example_gen: tfx.components.CsvExampleGen
  source: 'data/{SPAN}'
  schema_file: schema.pbtxt
  window: 3
"""
RUN = ("run", "--config", "mine.yaml", "--output", "out", "--set", "train.steps=3")
PLAN = {"kind": "pipeline", "name": "mine", "run_id": "R1", "nodes": ["ExampleGen"], "skipped": []}


def end(status="ok", cause=None, **report):
    whole = {"examples": {}, "metrics": {}, "blessed": False, "pushed": None, **report}
    return {"kind": "end", "status": status, "cause": cause, "report": whole}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SETTINGS)
    (tmp_path / "schema.pbtxt").write_text("feature {}")
    for span in (2, 3, 4, 5):
        (tmp_path / "data" / str(span)).mkdir(parents=True)
        (tmp_path / "data" / str(span) / "rows.csv").write_text("a,b\n1,2\n")
    return tmp_path


def noted(number: int, last: str | None = None, *, fails: bool = False) -> None:
    """A run for a span in the output folder, up to a component."""
    runs = SpanRuns(load("mine.yaml", ["train.steps=3"]), pathlib.Path("out"))
    (span,) = (each for each in runs.every() if each.number == number)
    Output(runs.output, "mine").of_span(f"R{number}.0", runs, span, last, fails=fails)


def commands(text: str) -> list[list[str]]:
    """The command lines that a text prints, each at the end of a part."""
    parts = [part.partition("stagecraft run")[2] for part in text.split("; ")]
    return [["run", *shlex.split(part)] for part in parts if part]


def test_each_span_has_a_line_and_complete_ones_are_left_out(stagecraft):
    noted(3)
    ran = stagecraft(*RUN, "--spans", "2:4", fake=[PLAN, end()])
    assert ran.code == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line[:2] in ("2:", "3:", "4:")]
    assert [line[0] for line in lines] == ["2", "3", "4"]
    assert lines[1].endswith("R3"), "the run that completed it"


def test_json_is_one_line(stagecraft):
    noted(3)
    ran = stagecraft(*RUN, "--spans", "2:4", "--json", fake=[PLAN, end()])
    assert ran.code == 0 and len(ran.stdout.splitlines()) == 1
    found = ran.last_line["spans"]
    assert [each["span"]["span"] for each in found] == [2, 3, 4]
    assert [each.get("completed_by") for each in found] == [None, "R3.0", None]
    assert found[0]["pipeline"] == "mine" and "error" not in ran.last_line


def test_it_prints_how_to_go_on_with_a_span_and_without_it(stagecraft):
    options = ("--require-blessing", "--json")
    ran = stagecraft(*RUN, "--spans", "2:4", *options, fake=[PLAN, end("failed", "refused")])
    assert ran.code == 1 and len(ran.last_line["spans"]) == 1
    assert commands(ran.last_line["error"]) == [
        [*RUN, "--spans", "2:4", *options],
        [*RUN, "--spans", "3:4", *options],
    ]
    ran = stagecraft(*RUN, "--spans", "4", fake=[PLAN, end("failed", "refused")])
    assert commands(ran.stderr) == [[*RUN, "--spans", "4"]], "nothing comes after it"


def test_an_interrupted_span_is_resumed(stagecraft):
    ran = stagecraft(*RUN, "--spans", "2:4", "--json", fake=[PLAN, end("interrupted")])
    assert ran.code == 128 + 15
    assert commands(ran.last_line["error"]) == [[*RUN, "--spans", "2:4", "--json"]]


def test_the_recorded_command_runs_one_span(stagecraft, folder):
    assert stagecraft(*RUN, "--spans", "2", fake=["spec", PLAN, end()]).code == 0
    spec = json.loads((folder / "out" / "spec").read_text())
    assert shlex.split(spec["command"]) == ["stagecraft", *RUN, "--set", "data.span=2"]


def test_a_fixed_span_does_not_matter(stagecraft, folder):
    (folder / "mine.yaml").write_text(SETTINGS + "  span: '77'\n")
    ran = stagecraft(*RUN, "--spans", "2:3", "--json", fake=["spec", PLAN, end()])
    assert [each["span"]["span"] for each in ran.last_line["spans"]] == [2, 3]
    spec = json.loads((folder / "out" / "spec").read_text())
    assert spec["settings"]["data"]["span"] == "3"


def test_a_few_missing_spans_are_named(stagecraft, folder):
    (folder / "data" / "172800").mkdir()
    (folder / "data" / "172800" / "rows.csv").write_text("a,b\n1,2\n")
    ran = stagecraft(*RUN, "--spans", "2:latest", fake=[PLAN, end()])
    (line,) = (line for line in ran.stdout.splitlines() if "172,784" in line)
    assert "15" in line and "17," not in line.replace("172,784", "")


def test_older_models_on_top_of_a_newer_one_are_said(stagecraft):
    noted(5)
    ran = stagecraft(*RUN, "--spans", "2:4", fake=[PLAN, end()])
    assert [*RUN, "--to", GATE, "--spans", "2:4"] in commands(ran.stderr)
    for words in (("--spans", "2:4", "--to", GATE), ("--spans", "5")):
        assert "stagecraft" not in stagecraft(*RUN, *words, fake=[PLAN, end()]).stderr


def told(*numbers: int) -> list[dict[str, object]]:
    return [{"span": number, "name": str(number), "files": 1} for number in numbers]


def shown(stagecraft, *numbers: int) -> str:
    """The window on the screen after a run that read these spans for it."""
    ran = stagecraft(*RUN, fake=[PLAN, end(window=told(*numbers))])
    assert ran.code == 0, ran.stderr
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("window"))
    return line


def test_the_window_names_a_command_that_reads_what_is_missing(stagecraft):
    assert commands(shown(stagecraft, 5)) == [[*RUN, "--to", GATE, "--spans", "3:4"]]
    noted(3, GATE, fails=True)
    assert commands(shown(stagecraft, 5)) == [[*RUN, "--to", GATE, "--spans", "4"]], "3 was refused"
    assert commands(shown(stagecraft, 4, 5)) == []


def test_nothing_is_missing_before_the_first_span(stagecraft):
    line = shown(stagecraft, 2)
    assert line.split()[1:] == ["1", "span,", "2"] and not commands(line)
