import os
import pathlib
import time
from typing import Any

import psutil
import pytest
from model_arguments import classes

from stagecraft.trainer_module.parallel.cluster import roles
from stagecraft.trainer_module.parity.check import ProcessError, run
from stagecraft.trainer_module.parity.task import Results, Task
from stagecraft.trainer_module.processes.process import WorkerProcess
from stagecraft.trainer_module.settings import TrainingSettings


def _run(
    folder: pathlib.Path, start_seconds: float = 60.0, seconds: float = 60.0, **parallel: Any
) -> list[str]:
    settings = TrainingSettings.model_validate({"parallel": parallel})
    phases: list[str] = []
    tasks = []
    for role in roles(settings.parallel):
        task = Task(
            settings=settings,
            arguments=classes(),
            data="",
            steps=4,
            out=str(folder / f"{role.name}.npz"),
            reference=None,
        )
        tasks.append((role, task))
    run(
        tasks,
        folder / "log",
        start_seconds=start_seconds,
        seconds=seconds,
        on_phase=phases.append,
    )
    return phases


def test_they_write_and_tell(fake, tmp_path):
    assert _run(tmp_path, accumulate=2) == ["float32"]
    results = Results(str(tmp_path / "process.npz"))
    assert results.notes.parts == 1  # the model has no statistics
    assert set(results.under("0/gradients/1/")) == {"kernel"}
    assert "noise" in (tmp_path / "log").read_text()


def _children() -> set[int]:
    """Of this process; fixtures of other tests have some, too."""
    return {child.pid for child in psutil.Process().children() if child.is_running()}


def test_those_that_serve_are_ended(fake, tmp_path):
    before = _children()
    _run(tmp_path, strategy="parameter_server")
    assert _children() <= before


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("die", r"the process ended with exit code 4; its last output: noise"),
        ("segfault", "the process was ended by SIGSEGV"),
        ("error", "^train.model: cannot be cut$"),
    ],
)
def test_an_end_without_a_result_is_told(fake, tmp_path, behaviour, message):
    fake(one_device=behaviour)
    with pytest.raises(ProcessError, match=message):
        _run(tmp_path)


def test_the_process_of_several_is_named(fake, tmp_path):
    fake(multi_worker_mirrored="error")
    with pytest.raises(ProcessError, match="worker [01]: "):
        _run(tmp_path, strategy="multi_worker_mirrored", workers=2)


def test_one_that_never_starts_is_given_up(fake, tmp_path):
    fake(one_device="silent")
    with pytest.raises(ProcessError, match="ready"):
        _run(tmp_path, start_seconds=0.2)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_one_that_hangs_is_ended_with_its_children(fake, tmp_path, monkeypatch):
    fake(one_device="hang")
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids"))
    with pytest.raises(ProcessError):
        _run(tmp_path, seconds=5.0)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10  # SIGKILL is on its way to the child, too
    while alive := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < deadline, alive


def test_an_interrupt_leaves_nothing(fake, tmp_path, monkeypatch):
    def interrupt(self: Any) -> None:
        raise KeyboardInterrupt

    before = _children()
    monkeypatch.setattr(WorkerProcess, "read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path)
    assert _children() <= before


def test_another_tf_config_is_not_passed_on(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "not even JSON")
    _run(tmp_path)
    assert os.environ["TF_CONFIG"] == "not even JSON"
