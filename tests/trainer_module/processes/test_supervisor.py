import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.processes import launcher, liveness
from stagecraft.trainer_module.processes.launcher import Supervisor
from stagecraft.trainer_module.settings import ParallelSettings

FAKE = pathlib.Path(__file__).parent / "fake_process.py"
IN_STEP: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}
BY_A_CHIEF: dict[str, Any] = {"strategy": "parameter_server", "workers": 2}


class Run:
    """Log, events and processes of a run."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self.log: list[str] = []
        self.events: list[dict[str, Any]] = []

    @property
    def lives(self) -> list[str]:
        """Roles, in the order in which they came to life."""
        lines = (self._folder / "lives").read_text().splitlines()
        return sorted(line.rpartition(" ")[0] for line in lines)

    def kinds(self, *which: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] in which]


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    monkeypatch.setattr(launcher, "_LONGEST_BACK_OFF", 0.0)
    monkeypatch.setattr(liveness, "GATHER_SECONDS", 0.5)
    monkeypatch.setattr(liveness, "LINGER_SECONDS", 1.0)

    def of(
        plan: dict[str, list[str]], error: str | None = None, write_log: Any = None, **parallel: Any
    ) -> Run:
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        result = Run(tmp_path)
        training = Supervisor(
            ParallelSettings(**parallel),
            write_log=write_log or result.log.append,
            on_event=result.events.append,
            environments=lambda roles: [{}] * len(roles),
            program=[str(FAKE), str(tmp_path)],
        )
        if error is None:
            training.run()
        else:
            with pytest.raises(UserError, match=error):
                training.run()
        assert _alive(tmp_path) == []
        assert _scratches(tmp_path) == []
        return result

    return of


def test_all_are_started_and_end(run):
    result = run({}, **IN_STEP)
    assert result.lives == ["worker 0", "worker 1"]
    assert "worker 1: worker 1 does: done" in result.log
    # The chief's are the events of all.
    told = [each["event"] for each in result.events if each["event"] not in ("process", "beat")]
    assert told == ["started", "progress", "done"]
    assert [each["name"] for each in result.kinds("process")] == ["worker 0", "worker 1"]


KILLED = "worker 1 was ended by SIGKILL"


@pytest.mark.parametrize(
    ("plan", "cause"),
    [
        ({"worker 0": ["forever", "done"], "worker 1": ["kill", "done"]}, KILLED),
        ({"worker 0": ["lost peer", "done"], "worker 1": ["kill", "done"]}, KILLED),
        ({"worker 0": ["error of TensorFlow's", "done"], "worker 1": ["kill", "done"]}, KILLED),
        ({"worker 0": ["lost peer", "done"]}, "worker 0: UnavailableError: connection reset"),
    ],
)
def test_a_lost_process_restarts_all(run, plan, cause):
    result = run(plan, **IN_STEP)
    assert result.lives == ["worker 0", "worker 0", "worker 1", "worker 1"]
    assert [event["message"] for event in result.kinds("lost")] == [cause]


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (
            {"worker 0": ["lost peer"], "worker 1": ["for good"]},
            "^worker 1: train.model: no such model$",
        ),
        ({"worker 1": ["unstarted"]}, "worker 1 ended with exit code 7; its last"),
        ({"worker 0": ["error of TensorFlow's"]}, "InternalError: ring aborted"),
    ],
)
def test_a_permanent_error_is_not_retried(run, plan, error):
    assert run(plan, error=error, **IN_STEP).lives == ["worker 0", "worker 1"]


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        (2, r"after 2 restarts \(parallel.max_restarts\): worker 1 was ended by SIGKILL"),
        (0, "^Training stopped: worker 1 was ended by SIGKILL$"),
    ],
)
def test_the_number_of_restarts_is_limited(run, limit, error):
    result = run({"worker 1": ["kill"]}, error=error, max_restarts=limit, **IN_STEP)
    assert len(result.lives) == 2 * (limit + 1)
    assert [event["number"] for event in result.kinds("restart")] == [*range(1, limit + 1)]


def test_the_pause_before_a_restart_grows():
    training = Supervisor(
        ParallelSettings(max_restarts=2000, **IN_STEP),
        write_log=print,
        on_event=lambda event: None,
        environments=lambda roles: [],
    )
    pauses = [training._count_restart("all", "lost") for _ in range(1500)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30] and pauses[-1] == 30


def test_a_child_that_holds_the_pipe_hides_no_end(run, tmp_path):
    started = time.monotonic()
    run({"worker 1": ["leave a child", "done"]}, **IN_STEP)
    assert time.monotonic() - started < 30
    assert not _is_alive(int((tmp_path / "child").read_text()))


def test_one_that_has_nothing_more_to_tell_is_ended(run):
    result = run({"worker 1": ["close", "done"]}, **IN_STEP)
    assert result.lives.count("worker 1") == 2


@pytest.mark.parametrize("end", ["done, and die", "done, and stay"])
def test_what_is_done_is_done(run, end):
    assert run({"worker 1": [end]}, **IN_STEP).lives == ["worker 0", "worker 1"]


def test_an_evaluator_keeps_nobody_waiting(run):
    result = run({"evaluator 0": ["forever"]}, evaluator=True)
    assert result.lives == ["chief 0", "evaluator 0"]


def test_an_evaluator_that_cannot_be_had_is_done_without(run):
    plan = {"chief 0": ["until evaluator 0 3"], "evaluator 0": ["kill"]}
    result = run(plan, evaluator=True, max_restarts=2)
    assert result.lives.count("evaluator 0") == 3 and result.lives.count("chief 0") == 1


def test_all_are_ended_also_when_the_log_cannot_be_written(run, tmp_path):
    def full(line: str) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        run({f"worker {i}": ["forever"] for i in (0, 1)}, write_log=full, **IN_STEP)
    assert _alive(tmp_path) == []


def test_one_that_is_frozen_counts_as_lost(run):
    started = time.monotonic()
    result = run(
        {"worker 0": ["forever", "done"], "worker 1": ["freeze", "done"]},
        silence_timeout_seconds=2,
        **IN_STEP,
    )
    lost = result.kinds("lost")[0]["message"]
    assert lost.startswith("worker 1 sent no") and "parallel.silence_timeout_seconds" in lost
    assert time.monotonic() - started < 2 + 10  # and a stopped process ends, too


@pytest.mark.parametrize(
    ("own", "other", "restarted"),
    [
        ({"worker 1": ["freeze", "forever"]}, {"ps 0": ["forever"]}, ["worker 1"]),
        ({"worker 1": ["kill", "forever"]}, {"ps 0": ["forever"]}, ["worker 1"]),
        (
            {"ps 0": ["kill", "forever"]},
            {"worker 1": ["forever"]},
            ["chief 0", "ps 0", "worker 0", "worker 1"],
        ),
    ],
)
def test_a_worker_of_a_parameter_server_restarts_alone(run, own, other, restarted):
    until = f"until {','.join(restarted)} 2"
    plan = {"chief 0": [until], "worker 0": ["forever"], **own, **other}
    result = run(plan, silence_timeout_seconds=2, **BY_A_CHIEF)
    assert result.lives == sorted(["chief 0", "ps 0", "worker 0", "worker 1", *restarted])
    assert len(result.kinds("restart")) == 1


def test_an_evaluator_restarts_alone(run):
    plan = {"chief 0": ["until evaluator 0 2"], "evaluator 0": ["kill", "done"]}
    assert run(plan, evaluator=True).lives == ["chief 0", "evaluator 0", "evaluator 0"]


def test_asked_to_stop_they_may_save(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"worker 0": ["save"], "worker 1": ["save"]}))
    parent = _parent(tmp_path)
    _wait_for(lambda: len([*tmp_path.glob("* would save")]) == 2)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(20) != 0
    assert len([*tmp_path.glob("* saved")]) == 2
    assert _alive(tmp_path) == []


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({f"worker {i}": ["forever"] for i in (0, 1)}))
    parent = _parent(tmp_path)
    _wait_for(lambda: len(_lives(tmp_path)) == 2)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(5)
    _wait_for(lambda: not _alive(tmp_path))
    assert _scratches(tmp_path) == []


def _scratches(folder: pathlib.Path) -> list[str]:
    """Temporary files that are left."""
    path = folder / "scratches"
    made = path.read_text().splitlines() if path.exists() else []
    return [name for name in made if os.path.exists(name)]


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _parent(folder: pathlib.Path) -> subprocess.Popen[bytes]:
    code = textwrap.dedent(f"""
        import sys
        from stagecraft.trainer_module.processes import liveness, launcher
        from stagecraft.trainer_module.settings import ParallelSettings
        parallel = ParallelSettings(strategy="multi_worker_mirrored", workers=2)
        launcher.Supervisor(
            parallel, write_log=print, on_event=print,
            environments=lambda roles: [dict()] * len(roles),
            program=[{str(FAKE)!r}, {str(folder)!r}],
        ).run()
    """)
    return subprocess.Popen([sys.executable, "-c", code])


def _lives(folder: pathlib.Path) -> list[int]:
    path = folder / "lives"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[-1]) for line in lines]


def _alive(folder: pathlib.Path) -> list[int]:
    return [pid for pid in _lives(folder) if _is_alive(pid)]


def _wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
