"""``stagecraft watch``: which spans it runs, in which order, without a pipeline."""

from __future__ import annotations

import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.archives import files
from stagecraft.components.metadata.file import MetadataFileError
from stagecraft.pipeline.cli.commands import run as run_module, watch
from stagecraft.pipeline.cli.terminal import span_lines
from stagecraft.pipeline.local.interrupt import taken
from stagecraft.pipeline.local.lock import InUseError
from stagecraft.pipeline.local.ownership import ForeignOutputError
from stagecraft.pipeline.local.span_runs import GATE, SpanRuns, SpanWatch
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
        self.in_use: list[int] = []  # spans whose run finds the folder in use, once each
        self.held: list[UserError] = []  # what the next looks at the folder find
        self.complete: set[int] = set()  # spans with a complete run before the command
        (folder / "schema.pbtxt").write_text("feature {}")
        settings = load(
            None,
            (
                "task.name=regression",
                "task.args={features: {a: numeric}, label: b}",
                "data.example_gen=tfx.components.CsvExampleGen",
                f"data.schema_file={folder}/schema.pbtxt",
                f"data.source={folder}/{{SPAN}}",
                "data.window=2",
            ),
        )
        self.runs = SpanRuns(settings, folder / "out")
        monkeypatch.setattr(run_module, "check_output", self._check)
        monkeypatch.setattr(span_lines, "run", self._run)
        monkeypatch.setattr(SpanRuns, "completed", self._completed)

    def _check(self, settings: Any, output: pathlib.Path) -> None:
        if self.held:
            raise self.held.pop(0)

    def _completed(self, wanted: Any, to_node: Any = None) -> dict[int, str]:
        return {each.number: "a run" for each in wanted if each.number in self.complete}

    def _run(self, runs: SpanRuns, span: Any, log: Any, *, to_node: Any, command: str) -> Any:
        log.close()
        assert f"data.span={span.name}" in command
        if span.number in self.in_use:
            self.in_use.remove(span.number)
            return span_lines.Line("", Outcome("in use"), "held by 7", {})
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
        watch._Follower(self.runs, command).follow(Script(list(steps)), 60, last)
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


def test_a_day_whose_labels_come_late_is_read_for_the_window_when_they_are_there(watched):
    watched.write("1/a", "2/a")
    watched.fails = {2}  # AnomalyGate misses the labels

    def bring_labels() -> None:
        watched.fails.clear()
        watched.write("2/b")

    steps = (nothing, lambda: watched.write("3/a"), nothing, nothing, bring_labels, nothing)
    found = watched.follow(*steps, nothing)
    assert found == [(1, GATE), (2, None), (3, None), (2, GATE)]


def test_a_refused_span_is_tried_again_with_another_schema(watched):
    watched.write("1/a")
    watched.fails = {1}
    schema = watched.folder / "schema.pbtxt"
    found = watched.follow(nothing, nothing, lambda: schema.write_text(""), nothing, nothing)
    assert found == [(1, None), (1, None)]


def test_all_spans_after_the_last_complete_one_run_after_a_pause(watched):
    watched.write(*(f"{number}/a" for number in range(1, 7)))
    watched.complete = {2, 3}
    assert watched.follow(nothing, nothing, nothing) == [(4, None), (5, None), (6, None)]


def test_it_looks_up_the_files_of_the_window_alone(watched, monkeypatch):
    watched.write(*(f"{number}/a" for number in range(1, 31)))
    watched.complete = {30}
    looked = []
    glob = files.glob
    monkeypatch.setattr(files, "glob", lambda pattern: looked.append(pattern) or glob(pattern))
    made = SpanWatch(watched.runs)
    looked.clear()
    for _ in range(3):
        made.due()
    assert len(looked) <= 3 * 6, "of two spans, the one before, the newest one and two patterns"


def test_a_command_that_was_faster_is_waited_for(watched, capsys):
    watched.write("1/a")
    watched.in_use = [1, 1]
    assert watched.follow(*[nothing] * 5) == [(1, None)]
    assert capsys.readouterr().out.count("held by 7") == 1


def test_it_waits_for_a_lock_only(watched, tmp_path):
    locks = [
        InUseError(tmp_path, "7"),
        MetadataFileError("metadata.db", "locked", "is locked", "wait"),
    ]
    watched.write("1/a")
    watched.held = [*locks]
    assert watched.follow(*[nothing] * 5) == [(1, None)]
    for error in (
        MetadataFileError("metadata.db", "damaged", "is damaged", "restore it"),
        ForeignOutputError(tmp_path, "theirs", "ours"),
    ):
        watched.write("2/a")
        watched.held = [error]
        with pytest.raises(type(error)):
            watched.follow(*[nothing] * 3)


def test_errors_that_do_not_end_are_said_at_the_start(stagecraft, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "a").write_text("a,b\n1,2\n")
    (tmp_path / "schema.pbtxt").write_text("feature {}")
    (tmp_path / "settings.yaml").write_text(
        "name: mine\n"
        "task: {name: regression, args: {features: {a: numeric}, label: b}}\n"
        "train: {model: dnn_16}\n"
        "data:\n  example_gen: tfx.components.CsvExampleGen\n  source: '{SPAN}'\n"
        "  schema_file: schema.pbtxt\n  span: '7'\n"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "metadata.db").write_text("damaged")
    words = ("--config", "settings.yaml", "--output", "out")
    ran = stagecraft("watch", *words)
    assert ran.code == 1 and "metadata.db" in ran.stderr


def test_a_file_that_vanishes_during_a_look_is_looked_at_again(watched, monkeypatch):
    watched.write("1/a", "1/b.tmp")
    size, looks = files.size, []

    def removed_meanwhile(path: str) -> int:
        if path.endswith(".tmp"):
            looks.append(path)
            pathlib.Path(path).unlink()
        return size(path)

    monkeypatch.setattr(files, "size", removed_meanwhile)
    assert watched.follow(nothing) == []  # two looks, which differ
    assert len(looks) == 1
    assert watched.follow(nothing) == [(1, None)]


def test_it_ends_after_the_span_that_it_waits_for(watched):
    watched.write("1/a", "2/a", "3/a")
    assert watched.follow(nothing, nothing, nothing, last=3) == [(2, GATE), (3, None)]


def test_a_signal_ends_the_run_and_the_command(watched):
    watched.write("1/a", "2/a")
    watched.stops = 1
    stop = threading.Event()
    stop.wait = lambda timeout=None: None  # type: ignore[method-assign]
    command = {"config": "mine.yaml", "overrides": (), "data": None, "output": None}
    with taken(lambda *_: stop.set(), signal.SIGTERM):
        watch._Follower(watched.runs, command).follow(stop, 60, None)
    assert stop.is_set() and watched.ran == [(1, GATE)]
