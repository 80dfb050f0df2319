"""``stagecraft watch``: which spans it runs, in which order, without a pipeline."""

from __future__ import annotations

import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stagecraft.pipeline.cli.commands import run as run_module, watch
from stagecraft.pipeline.cli.terminal import span_lines
from stagecraft.pipeline.local.span_runs import GATE, SpanRuns
from stagecraft.pipeline.local.supervisor import Outcome
from stagecraft.pipeline.settings import load

Step = Callable[[], object]


class Script(threading.Event):
    """Stands for the time between two looks: does something instead of waiting; then stops."""

    def __init__(self, steps: list[Step]):
        super().__init__()
        self._steps = steps

    def wait(self, timeout: float | None = None) -> bool:
        if self._steps:
            self._steps.pop(0)()
        else:
            self.set()
        return self.is_set()


class Watched:
    """A folder of spans, and the runs that a watch made of them."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.ran, self.fails = folder, [], set[int]()
        self.stops: int | None = None
        settings = load(
            None,
            (
                "task.name=regression",
                "task.args={features: {a: numeric}, label: b}",
                "data.example_gen=tfx.components.CsvExampleGen",
                "data.schema_file=schema.pbtxt",
                f"data.source={folder}/{{SPAN}}",
                "data.window=2",
            ),
        )
        self.runs = SpanRuns(settings, folder / "out")
        monkeypatch.setattr(run_module, "check_output", lambda settings, output: None)
        monkeypatch.setattr(span_lines, "run", self._run)

    def _run(self, runs: SpanRuns, span: Any, log: Any, *, to_node: Any, command: str) -> Any:
        log.close()
        assert f"data.span={span.name}" in command
        self.ran.append((span.number, to_node))
        status = "failed" if span.number in self.fails else "ok"
        if span.number == self.stops:
            return span_lines.Line("", Outcome("interrupted", signal=signal.SIGTERM), "", {})
        return span_lines.Line("", Outcome(status), None if status == "ok" else "", {})

    def write(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("a,b\n1,2\n")

    def follow(self, *steps: Step, last: int | None = None) -> list[tuple[int, str | None]]:
        command = {"config": "mine.yaml", "overrides": (), "data": None, "output": None}
        watch._Watch(self.runs, command).follow(Script(list(steps)), 60, last)
        return self.ran


@pytest.fixture
def watched(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def nothing() -> None:
    """Lets time pass."""


def test_the_window_is_read_first_then_each_new_span_runs_once(watched):
    watched.write("1/a", "2/a", "3/a")
    found = watched.follow(nothing, nothing, lambda: watched.write("4/a"), nothing, nothing)
    assert found == [(2, GATE), (3, None), (4, None)]


def test_a_span_that_is_being_written_waits(watched):
    watched.write("1/a")
    found = watched.follow(
        *(lambda name=name: watched.write(name) for name in ("1/b", "1/c", "1/d")), nothing
    )
    assert found == [(1, None)]


def test_changed_files_run_again_and_older_ones_are_read_for_the_window(watched):
    watched.write("1/a", "2/a")
    found = watched.follow(nothing, lambda: watched.write("2/b", "1/b"), nothing, nothing)
    assert found == [(1, GATE), (2, None), (1, GATE), (2, None)]


def test_a_failed_span_waits_for_its_files_to_change(watched):
    watched.write("1/a")
    watched.fails = {1, 2}
    found = watched.follow(
        nothing,
        lambda: watched.write("2/a"),
        nothing,
        nothing,
        lambda: watched.write("2/b"),
        nothing,
    )
    assert [number for number, to_node in found if to_node is None] == [1, 2, 2]


def test_it_ends_after_the_span_that_it_waits_for(watched):
    watched.write("1/a", "2/a", "3/a")
    assert watched.follow(nothing, nothing, nothing, last=3) == [(2, GATE), (3, None)]


def test_a_signal_ends_the_run_and_the_command(watched):
    watched.write("1/a", "2/a")
    watched.stops = 1
    with watch._signals() as stop:
        command = {"config": "mine.yaml", "overrides": (), "data": None, "output": None}
        made = watch._Watch(watched.runs, command)
        stop.wait = lambda timeout=None: None  # type: ignore[method-assign]
        made.follow(stop, 60, None)
    assert stop.is_set() and watched.ran == [(1, GATE)]
