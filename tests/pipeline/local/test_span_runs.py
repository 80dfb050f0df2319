"""Which spans have a complete run, by the notes of runs that nobody ran."""

from __future__ import annotations

import pathlib

import pytest
from past_runs import Output

from stagecraft.components.example_gen.spans import Span
from stagecraft.components.metadata import run_metadata
from stagecraft.pipeline.local import span_states
from stagecraft.pipeline.local.span_runs import GATE, SpanRuns
from stagecraft.pipeline.local.span_states import Inputs
from stagecraft.pipeline.settings import load


class Spans:
    """A folder with spans, and the runs for them."""

    def __init__(self, folder: pathlib.Path, *overrides: str):
        self.folder = folder
        (folder / "schema.pbtxt").write_text("feature {}")
        (folder / "own_span_model.py").write_text("def build(): ...")
        self.output = Output(folder / "out")
        self.runs = SpanRuns(self.settings(*overrides), folder / "out")

    def settings(self, *overrides: str):
        return load(
            None,
            (
                "task.name=regression",
                "task.args={features: {a: numeric}, label: b}",
                "train.model=own_span_model:build",
                "data.example_gen=tfx.components.CsvExampleGen",
                f"data.schema_file={self.folder}/schema.pbtxt",
                f"data.source={self.folder}/{{SPAN}}",
                *overrides,
            ),
        )

    def write(self, *numbers: int) -> list[Span]:
        for number in numbers:
            (self.folder / str(number)).mkdir()
            (self.folder / str(number) / "rows.csv").write_text("a,b\n1,2\n")
        return self.runs.every()

    def ran(self, span: Span, *, last: str | None = None, fails: bool = False) -> str:
        """A run up to a component, which may have failed."""
        name = f"run of {span.name} to {last}"
        self.output.of_span(name, self.runs, span, last, fails=fails)
        return name


@pytest.fixture
def spans(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Spans:
    monkeypatch.syspath_prepend(tmp_path)
    return Spans(tmp_path)


def test_a_run_completes_its_span(spans: Spans) -> None:
    one, two, three = there = spans.write(1, 2, 3)
    assert spans.runs.completed(there) == {}
    name, read = spans.ran(one), spans.ran(two, last=GATE)
    spans.ran(three, last=GATE, fails=True)
    assert spans.runs.completed(there) == {1: name}
    assert spans.runs.completed(there, GATE) == {1: name, 2: read}
    assert spans.runs.readable(["0", "2", "3"]) == ["2"], "0 is not there, 3 was refused"
    (spans.folder / "3" / "more.csv").write_text("a,b\n1,2\n")
    assert spans.runs.readable(["2", "3"]) == ["2", "3"]


def test_another_schema_is_another_run(spans: Spans) -> None:
    (one,) = spans.write(1)
    spans.ran(one)
    (spans.folder / "schema.pbtxt").write_text("feature { }")
    assert not spans.runs.completed([one]) and not spans.runs.completed([one], GATE)


def test_another_model_is_another_training(spans: Spans) -> None:
    (one,) = spans.write(1)
    name = spans.ran(one)
    assert spans.runs.completed([one]) == {1: name}
    for text in ("def build(): return 1", "def build(: a mistake", "def build("):
        before = Inputs.of(spans.runs.settings)
        (spans.folder / "own_span_model.py").write_text(text)
        assert Inputs.of(spans.runs.settings).whole != before.whole
        assert spans.runs.completed([one], GATE) == {1: name}, "it only reads"
        assert not spans.runs.completed([one])


def test_a_run_notes_what_its_span_depends_on(spans: Spans) -> None:
    *_, two = spans.write(1, 2)
    expected = Inputs.of(spans.runs.settings).states(two)
    assert span_states.of_run(spans.settings()) == expected
    assert span_states.of_run(spans.runs.of(two)) == expected
    assert span_states.of_run(load("quickstart")) == ("", "")


def test_a_vanished_file_completes_nothing(spans: Spans) -> None:
    (one,) = spans.write(1)
    spans.ran(one)
    (spans.folder / "1" / "rows.csv").unlink()
    assert not spans.runs.completed([one])


def test_the_span_that_was_pushed_last(spans: Spans) -> None:
    one, two = spans.write(1, 2)
    assert spans.runs.pushed() == {}
    spans.ran(two)
    spans.ran(one, last=GATE)
    assert spans.runs.pushed()["span"] == 2


def test_all_spans_cost_one_reading_of_the_runs(spans: Spans, monkeypatch) -> None:
    there = spans.write(*range(20))
    for span in there:
        spans.ran(span, last=GATE)
    calls = []
    contexts = run_metadata.run_contexts
    monkeypatch.setattr(
        run_metadata, "run_contexts", lambda path: calls.append(path) or contexts(path)
    )
    assert len(spans.runs.completed(there, GATE)) == 20
    assert len(calls) == 1


def test_a_fixed_span_hides_no_others(spans: Spans) -> None:
    spans.write(1, 2)
    fixed = SpanRuns(spans.settings("data.span=7"), spans.folder / "out")
    assert [each.number for each in fixed.every()] == [1, 2]
