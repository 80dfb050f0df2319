"""What people see."""

import io
import json

from rich.console import Console

from stagecraft.pipeline.cli.terminal import console, run_view, wording
from stagecraft.pipeline.cli.terminal.run_view import RunState


def table(state, height):
    file = io.StringIO()
    Console(file=file, width=60).print(run_view._table(state, height))
    return file.getvalue()


def test_on_a_terminal_a_long_last_column_is_below(monkeypatch, capsys):
    lines = [("1", "a=1 " + "b" * 30 + "=2 c=3"), ("2", "")]
    console.table(("RUN", "SETTINGS"), lines, folded=True)
    plain = ["RUN  SETTINGS", "1    " + lines[0][1], "2"]
    assert capsys.readouterr().out.splitlines() == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    console.table(("RUN", "SETTINGS"), lines, folded=True)
    assert capsys.readouterr().out.splitlines() == [
        "RUN", "    SETTINGS", "1", "    a=1 " + "b" * 30 + "=2", "    c=3", "2",
    ]  # fmt: skip


def test_a_table_longer_than_the_terminal_shows_what_matters_now():
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


def test_columns_are_as_wide_as_what_is_in_them(capsys):
    console.table(("NAME", "STATE"), [("数据", "done"), ("abcd", "failed")])
    assert capsys.readouterr().out == "NAME  STATE\n数据  done\nabcd  failed\n"


TRAINER = {"kind": "node", "node": "Trainer", "state": "running"}


def progress(phase, step):
    return {"kind": "progress", "phase": phase, "step": step, "total": 401}


def test_that_a_training_goes_on_is_told_at_once(capsys):
    lines = run_view._Lines(RunState(["Trainer"]), stderr=False)
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
        "  resuming from step 100 of 401",
        "  resuming from step 401 of 401: the training is complete",
        "  exporting the model",
    ]


def test_that_a_training_goes_on_stays_in_the_table():
    state = RunState(["Trainer"])
    state.run_id = "run"
    said = "resuming from step 100 of 401"
    for event in (TRAINER, progress("resume", 100)):
        state.apply(event)
    assert table(state, height=24).count(said) == 1
    state.apply(progress("train", 110))
    shown = [line.rstrip() for line in table(state, height=24).splitlines()]
    assert shown[-2].endswith("step 110 of 401")
    assert shown[-1] == said
    state.apply({"kind": "node", "node": "Trainer", "state": "done", "seconds": 1.0})
    assert said not in table(state, height=24)


EVIL = "\x1b[2J\x1b]0;title\x07\x9b31mdata\u202e_batch\x08\x00.bin\x1b[0m"
TOLD = "data_batch.bin"
SIGNED = "https://me:c4n4ry@host/x?sig=c4n4ry"
LEFT = "https://…@host/x?sig=…"


def test_text_of_others_is_made_plain_wherever_it_is_printed(capsys):
    console.say(EVIL)
    console.say(EVIL, stderr=True)
    console.error(EVIL)
    console.warning(EVIL)
    console.document(EVIL)
    console.fields([("name", EVIL)])
    console.table((EVIL, "B"), [(EVIL, EVIL)])
    lines = run_view._Lines(RunState([EVIL]), stderr=False)
    lines.show({"kind": "node", "node": EVIL, "state": "done", "seconds": 1.0, "figure": EVIL})
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        TOLD,
        TOLD,
        f"name  {TOLD}",
        f"{TOLD}  B",
        f"{TOLD}  {TOLD}",
        f"{TOLD}: done, 1.0 s ({TOLD})",
    ]
    assert shown.err.splitlines() == [TOLD, f"Error: {TOLD}", f"Warning: {TOLD}"]


def test_json_is_plain_too(capsys):
    console.say_json({EVIL: [EVIL, {"x": EVIL}], "n": 1, "f": float("inf"), "t": True})
    line = capsys.readouterr().out
    assert json.loads(line) == {TOLD: [TOLD, {"x": TOLD}], "n": 1, "f": None, "t": True}
    assert "u001b" not in line and "u009b" not in line


def test_the_live_table_is_plain():
    state = RunState([EVIL])
    state.run_id = "run"
    state.apply({"kind": "node", "node": EVIL, "state": "failed", "seconds": 1.0})
    state.apply({"kind": "node", "node": EVIL, "state": "running"})
    shown = table(state, height=24)
    assert TOLD in shown and "\x1b" not in shown and "\x9b" not in shown


def test_a_cell_is_one_line(capsys):
    console.table(("A", "B"), [("1\n2\r3", "x")])
    assert capsys.readouterr().out == "A      B\n1 2 3  x\n"


def test_what_no_terminal_can_encode(capsys):
    console.say("no\udcff.bin")
    assert capsys.readouterr().out == "no\ufffd.bin\n"


def test_secrets_are_shown_in_documents_alone(capsys):
    console.say(SIGNED)
    console.error(SIGNED)
    console.fields([("at", SIGNED)])
    console.table(("at",), [(SIGNED,)])
    console.say_json({"at": SIGNED})
    shown = capsys.readouterr()
    assert "c4n4ry" not in shown.out + shown.err
    assert shown.out.splitlines() == [LEFT, f"at  {LEFT}", "at", LEFT, json.dumps({"at": LEFT})]
    console.document(SIGNED)
    assert capsys.readouterr().out == f"{SIGNED}\n"


def test_a_wait_says_for_whom_and_how_long():
    event = {"phase": "wait", "holder": "process 7 on node-2", "seconds": 75, "file": "/kept"}
    text = wording.progress_text(event)
    assert all(part in text for part in ("process 7 on node-2", "1 min 15 s", "/kept"))
    assert event["phase"] in run_view.NOTICES
