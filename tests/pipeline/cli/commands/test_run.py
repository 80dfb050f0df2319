"""``stagecraft run`` with a worker that only pretends."""

import json
import os
import pathlib
import pty
import re
import shlex
import signal
import subprocess
import sys

import pytest
from past_runs import Output
from processes import signals

from stagecraft.pipeline.cli.commands.run import run_command
from stagecraft.pipeline.local import nodes

PLAN = {
    "kind": "pipeline",
    "name": "quickstart",
    "run_id": "R1",
    "nodes": nodes.by_default(),
    "skipped": [],
}
REPORT = {
    "examples": {"train": 4500, "val": 500, "eval": 1000},
    "metrics": {"accuracy": 0.71, "loss": 0.83, "top_3_accuracy": 0.93, "odd": float("nan")},
    "blessed": True,
    "not_blessed_because": [],
    "pushed": "/out/serving/1",
    "report": "/out/report.html",
}
END = {"kind": "end", "status": "ok", "cause": None, "report": REPORT}


def node(name, state, **more):
    return {"kind": "node", "node": name, "state": state, **more}


def ran(name, state="done", **more):
    return [node(name, "running"), node(name, state, **{"seconds": 1.5, "figure": "", **more})]


def failed(cause):
    """The end of a run."""
    return {"kind": "end", "status": "failed", "cause": cause, "report": {}}


ALL = [
    PLAN,
    *(event for name in nodes.by_default() for event in ran(name, figure=f"figure of {name}")),
    END,
]


def reporting(**more):
    """All events of a run whose report also says this."""
    return [*ALL[:-1], {**END, "report": {**REPORT, **more}}]


def test_json_is_the_last_line_and_the_only_one_on_stdout(stagecraft, tmp_path):
    result = stagecraft("run", "--json", "--output", "out", fake=ALL)
    assert result.code == 0
    assert len(result.stdout.splitlines()) == 1
    found = result.last_line
    assert found.pop("seconds") > 0
    assert found == {
        "pipeline": "quickstart",
        "run_id": "R1",
        "examples": {"train": 4500, "val": 500, "eval": 1000},
        "components": {name: {"seconds": 1.5, "state": "done"} for name in nodes.by_default()},
        "metrics": {"accuracy": 0.71, "loss": 0.83, "top_3_accuracy": 0.93, "odd": None},
        "blessed": True,
        "pushed": "/out/serving/1",
        "report": "/out/report.html",
        "output": "out",
    }
    assert "Trainer: done, 1.5 s (figure of Trainer)" in result.stderr


def test_without_a_terminal_there_is_a_line_per_event(stagecraft):
    result = stagecraft("run", fake=ALL)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["config  quickstart", "output  runs/quickstart"]
    log = pathlib.Path(lines[2].removeprefix("log     "))
    assert log.parent == pathlib.Path("runs/quickstart/logs") and log.exists()
    assert lines[3].startswith("starting: importing TensorFlow and TFX takes")
    assert lines[4] == "quickstart: run R1"
    assert lines[5:7] == [
        "Cifar10ExampleGen: running",
        "Cifar10ExampleGen: done, 1.5 s (figure of Cifar10ExampleGen)",
    ]
    summary = dict(line.split(maxsplit=1) for line in lines[-7:])
    assert summary["report"] == "/out/report.html"
    assert summary["accuracy"] == "0.7100 (top 3 0.930, loss 0.830)"
    assert summary["blessed"] == "yes"
    assert summary["pushed"] == "/out/serving/1"
    assert "stagecraft run --data download" in summary["next"]
    assert re.fullmatch(r"\d+ s, including \d+ s of startup", summary["time"])
    assert result.stderr == ""


def test_a_failure_shows_component_cause_and_log(stagecraft):
    trainer = ran("Trainer", "failed", seconds=2.0, cause="model 'resnet21': no such depth")
    events = [PLAN, *ran("Cifar10ExampleGen", "cached"), *trainer, failed("RuntimeError: wrapped")]
    result = stagecraft("run", "--json", fake=events)
    assert result.code == 1
    message = "Trainer failed: model 'resnet21': no such depth"
    assert message in result.stderr
    assert "\nlog: runs/quickstart/logs/" in result.stderr
    found = result.last_line
    assert found["error"] == message
    assert found["components"]["Trainer"] == {"seconds": 2.0, "state": "failed"}
    assert found["components"]["Cifar10ExampleGen"]["state"] == "cached"
    assert found["components"]["Pusher"] == {"seconds": None, "state": "waiting"}


def test_a_name_in_an_archive_cannot_drive_the_terminal(stagecraft):
    cause = "x.tar.gz: \x1b[2J\x1b]0;title\x07data\x9b31m_batch\u202e_1.bin\x08: record 7"
    events = [PLAN, *ran("Cifar10ExampleGen", "failed", cause=cause), failed(cause)]
    said = "Cifar10ExampleGen failed: x.tar.gz: data_batch_1.bin: record 7"
    for as_json in ((), ("--json",)):
        result = stagecraft("run", *as_json, fake=events)
        assert result.code == 1 and f"Error: {said}\nlog: " in result.stderr
        assert not set("\x1b\x9b\u202e\x08\x07") & set(result.stdout + result.stderr)
    assert result.last_line["error"] == said


def test_a_failure_before_any_component_has_its_cause(stagecraft):
    cause = "my.model: not found"
    result = stagecraft("run", fake=[failed(cause)])
    assert result.code == 1
    assert f"Error: {cause}\nlog: " in result.stderr


def test_a_killed_worker_fails_the_component_that_ran(stagecraft):
    result = stagecraft("run", "--json", fake=[PLAN, node("Trainer", "running"), "kill"])
    assert result.code == 1
    assert result.last_line["error"].startswith("Trainer failed: the process that runs the pipe")
    assert "SIGKILL" in result.stderr
    assert result.last_line["components"]["Trainer"]["state"] == "failed"


def test_not_blessed_is_said_and_is_an_error_only_if_required(stagecraft):
    why = "accuracy 0.7100 is below 0.8000"
    events = reporting(blessed=False, pushed=None, not_blessed_because=[why])
    result = stagecraft("run", fake=events)
    assert result.code == 0
    assert f"blessed   no: {why}" in result.stdout
    assert "pushed    no: " in result.stdout
    # 0.71 is more than the preset requires: the last blessed model was better.
    assert "train.epochs=30" in result.stdout and "evaluate.not_worse=false" in result.stdout
    more = ("--set", "train.steps=50", "--set", "evaluate.min_accuracy=0.8")
    hint = "next      train longer, such as --set train.steps=150, or lower evaluate.min_accuracy"
    assert hint in stagecraft("run", *more, fake=events).stdout.splitlines()

    result = stagecraft("run", "--json", "--require-blessing", fake=events)
    assert result.code == 1
    reason = f"the model was not blessed: {why}"
    assert result.last_line["error"] == reason
    assert stagecraft("run", "--require-blessing", fake=ALL).code == 0


def test_what_would_bless_a_model_that_is_no_better_than_a_constant(stagecraft):
    why = "10 of 100 right is not better than always saying 'cat' (12 of 100)"
    metrics = {"accuracy": 0.1, "better_than_constant": 0.2257}
    events = reporting(metrics=metrics, blessed=False, pushed=None, not_blessed_because=[why])
    zero = ("run", "--set", "evaluate.min_accuracy=0")
    done = stagecraft(*zero, "--require-blessing", fake=events)
    assert done.code == 1 and f"blessed   no: {why}" in done.stdout
    assert f"not blessed: {why}" in done.stderr
    assert "--set evaluate.better_than_constant=false" in done.stdout
    off = stagecraft(*zero, "--set", "evaluate.better_than_constant=false", fake=events)
    assert "better_than_constant" not in off.stdout


@pytest.mark.parametrize("is_reason", [True, False])
def test_the_comparison_with_a_constant_is_shown_once(stagecraft, is_reason):
    why = "mse 8.5 is not better than always answering the mean (mse 8.3)"
    metrics = {"mse": 8.5, "better_than_constant": 0.25}
    more = {"blessed": False, "not_blessed_because": [why]} if is_reason else {}
    events = reporting(metrics=metrics, monitor="mse", comparison=why, **more)
    lines = [" ".join(line.split()) for line in stagecraft("run", fake=events).stdout.splitlines()]
    assert "mse 8.5000" in lines
    assert [line for line in lines if why in line] == [
        f"blessed no: {why}" if is_reason else f"constant {why}"
    ]


def test_metrics_of_another_task(stagecraft):
    metrics = {"mse": 1.5, "mae": 0.75, "loss": 1.5, "example_count": 9.0}
    result = stagecraft("run", fake=reporting(metrics=metrics, monitor="mse"))
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "mse 1.5000 (mae 0.750, loss 1.500)" in lines


@pytest.mark.parametrize(
    ("thresholds", "metrics", "hint"),
    [
        (
            "{loss: {max: 1.0}}",
            {"accuracy": 0.9, "loss": 1.5},
            "raise evaluate.thresholds.loss.max",
        ),
        (
            "{top_3_accuracy: {min: 0.99}}",
            {"accuracy": 0.9, "top_3_accuracy": 0.98},
            "lower evaluate.thresholds.top_3_accuracy.min",
        ),
    ],
)
def test_a_threshold_that_blocks_a_model_is_named(stagecraft, thresholds, metrics, hint):
    events = reporting(metrics=metrics, blessed=False, pushed=None, not_blessed_because=["it is"])
    result = stagecraft("run", "--set", f"evaluate.thresholds={thresholds}", fake=events)
    assert result.code == 0, result.stderr
    assert f", or {hint}" in result.stdout
    nothing = reporting(metrics=metrics | {"loss": float("nan")}, blessed=False, pushed=None)
    assert ", or" not in stagecraft("run", fake=nothing).stdout


def test_the_watched_step_is_told(stagecraft):
    grid = ("--set", "parallel.strategy=grid", "--timeline", "20")
    watched = {"step": 20, "idle": 0.21, "bubble": 0.2, "trace": "out/timeline.trace.json"}
    events = reporting(timeline=watched)
    found = stagecraft("run", *grid, fake=events).stdout
    (waited,) = (line for line in found.splitlines() if "step 20: " in line)
    assert "21.0%" in waited and "(20.0%" in waited
    assert stagecraft("run", "--json", *grid, fake=events).last_line["timeline"] == watched
    missed = stagecraft("run", *grid, fake=ALL).stdout
    assert "timeline  none: " in missed and "--fresh --from Trainer" in missed
    assert "timeline" not in stagecraft("run", fake=ALL).stdout


def test_where_the_profile_is_is_told(stagecraft):
    asked = ("--profile", "5:6")
    events = reporting(profile="out/run")
    lines = stagecraft("run", *asked, fake=events).stdout.splitlines()
    assert "profile   tensorboard --logdir out/run" in lines
    assert stagecraft("run", "--json", *asked, fake=events).last_line["profile"] == "out/run"
    missed = stagecraft("run", *asked, fake=ALL).stdout
    assert "profile   none: " in missed and "5:6" in missed
    assert "profile " not in stagecraft("run", fake=ALL).stdout


RESUMES = ("--output", "out", "--fresh", "--from", "Trainer")


@pytest.mark.parametrize(
    ("events", "state", "resume"),
    [
        ([], "waiting", ["--fresh", "--from", "Trainer"]),
        ([PLAN, node("Trainer", "running")], "interrupted", ["--from", "Trainer"]),
        ([PLAN, *ran("Trainer"), node("Evaluator", "running")], "done", []),
    ],
)
def test_ctrl_c_shows_how_to_resume(stagecraft, tmp_path, events, state, resume):
    """Once the run has deleted the checkpoints, without --fresh and --from a finished component."""
    with signals(tmp_path / "out" / "hanging", signal.SIGINT):
        result = stagecraft("run", *RESUMES, "--json", fake=[*events, "hang"])
    assert result.code == 130
    command = " ".join(["stagecraft run --output out", *resume, "--json"])
    assert result.last_line["error"].endswith(f": {command}")
    assert result.last_line["components"]["Trainer"]["state"] == state


@pytest.mark.parametrize("lost", ["gone", "truncated"])
def test_what_earlier_runs_left_is_refused_where_a_run_cannot_build_on_it(
    stagecraft, tmp_path, lost
):
    output = Output(tmp_path / "out")
    output.whole("R0")
    old = tmp_path / "out/pipeline_root/Cifar10ExampleGen/examples/1/shard"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    (tmp_path / "out/pipeline_root/Cifar10ExampleGen/.system").mkdir()
    metadata_db = tmp_path / "out" / "metadata.db"
    content = metadata_db.read_bytes()
    metadata_db.unlink()
    if lost == "truncated":
        metadata_db.write_bytes(content[:5000])
    result = stagecraft("run", "--json", "--output", "out", "--fresh", fake=["kill"])
    assert result.code == 1
    said = "out/metadata.db: the database is truncated" if lost == "truncated" else f"{old.parent}"
    assert said.removeprefix(f"{tmp_path}/") in result.last_line["error"]
    assert old.read_text() == "old"
    assert not (tmp_path / "out" / "logs").exists()

    metadata_db.write_bytes(content)
    assert stagecraft("run", "--output", "out", fake=ALL).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "train.epoch=3"], "epochs"),
        (["--set", "train.batch_size=-1"], "train.batch_size"),
        (["--set", "parallel.stages=2"], "parallel.strategy: grid"),
        (["--set", "train.steps=9", "--set", "train.epochs=3"], "train.epochs"),
        (
            ["--set", "train.steps=9", "--set", "parallel.strategy=grid", "--timeline", "10"],
            "parallel.timeline_step: 9",
        ),
        (["--set", "train.steps=9", "--profile", "8:10"], "8:9"),
        (["--config", "quikstart"], "quickstart"),
        (["--data", "nowhere.tar.gz"], "nowhere.tar.gz"),
        (["--from", "Trainr"], "Trainer"),
        (["--to", "x"], "TrainingReport"),
        (["--from", "Evaluator", "--to", "Trainer"], "--from Trainer --to Evaluator"),
        (["--profile", "5"], "10:20"),
        (["--profile", "0:5"], "10:20"),
        (["--output", "file/below"], "--output"),
    ],
)
def test_errors_before_anything_starts(refused, tmp_path, arguments, said):
    (tmp_path / "file").write_text("")
    assert said in refused("run", *arguments)
    assert not (tmp_path / "runs").exists()


def test_another_pipelines_folder(refused, tmp_path):
    Output(tmp_path / "out").whole("one")
    before = sorted(tmp_path.rglob("*"))
    assert "runs/cifar10" in refused("run", "--config", "cifar10", "--output", "out")
    assert sorted(tmp_path.rglob("*")) == before  # without a log, and so without a worker


def test_a_folder_in_use(stagecraft, another_run, tmp_path):
    with another_run() as other:
        ran = stagecraft("run", "--json", "--output", str(tmp_path), "--set", "no.such=1")
    assert ran.code == 1
    assert str(tmp_path) in ran.stderr and str(other.pid) in ran.stderr
    assert not (tmp_path / "logs").exists()


def test_the_worker_gets_what_was_asked_for(stagecraft, tmp_path):
    data = tmp_path / "17"  # a name that YAML takes for a number
    data.write_text("")
    result = stagecraft(
        "run", "--data", "17", "--from", "Trainer", "--to", "Evaluator", "--runner", "beam",
        "--set", "train.epochs=3", "--output", "out", fake=["spec", END],
    )  # fmt: skip
    assert result.code == 0
    spec = json.loads((tmp_path / "out" / "spec").read_text())
    assert spec["settings"]["data"]["source"] == "17"
    assert spec["settings"]["train"]["epochs"] == 3
    assert (spec["runner"], spec["from_node"], spec["to_node"]) == ("beam", "Trainer", "Evaluator")
    assert spec["output"] == str(tmp_path / "out")
    words = "--set train.epochs=3 --runner beam --from Trainer --to Evaluator"
    assert spec["command"] == f"stagecraft run --data 17 --output out {words}"


def test_on_a_terminal_there_is_a_live_table(tmp_path):
    fake = pathlib.Path(__file__).parents[2] / "local" / "fake_worker.py"
    progress = {
        "kind": "progress", "phase": "train", "step": 30, "total": 120,
        "images_per_second": 1234.5, "loss": 1.25, "accuracy": None, "eta_seconds": 75,
    }  # fmt: skip
    pause = "pause"  # so that it is drawn
    fake_steps = [PLAN, *ran("Cifar10ExampleGen"), node("Trainer", "running"), progress, pause]
    code = (
        "import sys; from stagecraft.pipeline.local import supervisor; "
        f"supervisor._WORKER = ({str(fake)!r},); "
        "from stagecraft.pipeline.cli.main import main; main(['run', '--output', 'out'])"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "FAKE": json.dumps([*fake_steps, *ALL[1:]]), "TERM": "xterm"}
    environment["COLUMNS"] = "120"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=slave, stderr=slave, cwd=tmp_path, env=environment
    ) as command:
        os.close(slave)
        shown = b""
        while True:
            try:
                shown += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    os.close(master)
    text = shown.decode()
    assert command.returncode == 0
    assert "step 30 of 120, 1,234 images/s, loss 1.250, 1 min 15 s left" in text
    for word in ("waiting", "running", "done", "figure of Pusher", "0.7100"):
        assert word in text


def test_the_command_line_has_what_is_not_the_default():
    assert run_command() == "stagecraft run"
    said = run_command(
        config="cifar10",
        data="my pictures.tar.gz",
        overrides=("train.steps=9", "train.augment=[flip, crop]"),
        output=pathlib.Path("runs/a b"),
        runner="beam",
        from_node="Trainer",
        to_node="Pusher",
        fresh=True,
    )
    assert shlex.split(said) == [
        "stagecraft", "run", "--config", "cifar10", "--data", "my pictures.tar.gz",
        "--output", "runs/a b", "--set", "train.steps=9", "--set", "train.augment=[flip, crop]",
        "--runner", "beam", "--fresh", "--from", "Trainer", "--to", "Pusher",
    ]  # fmt: skip


def test_in_a_project_the_command_line_names_the_preset(tmp_path, monkeypatch):
    (tmp_path / "settings.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert run_command() == "stagecraft run --config quickstart"


def test_the_command_line_has_nothing_that_may_be_a_secret():
    said = run_command(
        overrides=(
            "kubeflow.every_step.env={TOKEN: hunter2}",
            'beam.args=["--password=hunter2"]',
            "kubeflow={every_step: {env: {TOKEN: hunter2}}}",
            "train.steps=3",
        )
    )
    assert "hunter2" not in said
    assert "kubeflow.every_step.env=…" in said and "beam.args=…" in said
    assert "train.steps=3" in said
