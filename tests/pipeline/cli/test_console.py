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
