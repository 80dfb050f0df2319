"""What people see."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.state import RunState


def table(state: RunState, height: int) -> str:
    file = io.StringIO()
    Console(file=file, width=60).print(console._table(state, height))
    return file.getvalue()


def test_on_a_terminal_a_long_last_column_is_below(monkeypatch, capsys):
    lines = [("1", "a=1 " + "b" * 30 + "=2 c=3"), ("2", "")]
    console.columns(("RUN", "SETTINGS"), lines, folded=True)
    plain = ["RUN  SETTINGS", "1    " + lines[0][1], "2"]
    assert capsys.readouterr().out.splitlines() == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    console.columns(("RUN", "SETTINGS"), lines, folded=True)
    assert capsys.readouterr().out.splitlines() == [
        "RUN", "    SETTINGS", "1", "    a=1 " + "b" * 30 + "=2", "    c=3", "2",
    ]  # fmt: skip


def test_a_table_longer_than_the_terminal_shows_what_matters_now() -> None:
    state = RunState([f"step{number}" for number in range(30)])
    state.run_id = "run"
    for number in range(23):
        state.apply({"kind": "node", "node": f"step{number}", "state": "done", "seconds": 1.0})
    state.apply({"kind": "node", "node": "step5", "state": "failed", "seconds": 1.0})
    state.apply({"kind": "node", "node": "step23", "state": "running"})
    lines = [line.split() for line in table(state, height=24).splitlines()]
    assert [line[0] for line in lines if line] == ["component", "step5", "step23", "(22", "(6"]
    assert ["(22", "components)", "done"] in lines and ["(6", "components)", "waiting"] in lines
    assert "step0" in table(state, height=40)


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    console.columns(("NAME", "STATE"), [("数据", "done"), ("abcd", "failed")])
    assert capsys.readouterr().out == "NAME  STATE\n数据  done\nabcd  failed\n"


TRAINER = {"kind": "node", "node": "Trainer", "state": "running"}


def progress(phase: str, step: int) -> dict:
    return {"kind": "progress", "phase": phase, "step": step, "total": 401}


def test_that_a_training_goes_on_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = console._Lines(stderr=False)
    for event in (
        TRAINER,
        progress("resume", 100),
        progress("train", 110),
        progress("resume", 401),
        {"kind": "progress", "phase": "export"},
    ):
        lines.show(event)
    assert capsys.readouterr().out.splitlines() == [
        "Trainer: running",
        "  going on from step 100 of 401",
        "  going on from step 401 of 401: nothing is left to train",
        "  exporting the model",
    ]


def test_that_a_training_goes_on_stays_in_the_table() -> None:
    state = RunState(["Trainer"])
    state.run_id = "run"
    said = "going on from step 100 of 401"
    for event in (TRAINER, progress("resume", 100)):
        state.apply(event)
    assert table(state, height=24).count(said) == 1
    state.apply(progress("train", 110))
    shown = [line.rstrip() for line in table(state, height=24).splitlines()]
    assert shown[-2].endswith("step 110 of 401")
    assert shown[-1] == said
    state.apply({"kind": "node", "node": "Trainer", "state": "done", "seconds": 1.0})
    assert said not in table(state, height=24)
