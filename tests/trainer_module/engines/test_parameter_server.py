import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stagecraft.trainer_module.parallel.cluster import Role, roles
from stagecraft.trainer_module.settings import ParallelSettings

pytestmark = pytest.mark.slow

PARALLEL = {"strategy": "parameter_server", "workers": 2, "ps": 2}
SCRIPT = pathlib.Path(__file__).with_name("serve.py")
SECONDS = 240.0
"""For all of it: nothing of it hangs."""


class Processes:
    """Chief, workers and parameter servers."""

    def __init__(self) -> None:
        self._roles = {role.name: role for role in roles(ParallelSettings(**PARALLEL))}
        self._started: dict[str, subprocess.Popen[str]] = {}
        for name in self._roles:
            self.start(name)
        self.chief = self._started["chief 0"]
        self._timer = threading.Timer(SECONDS, self.end)
        self._timer.start()

    def start(self, name: str) -> None:
        role: Role = self._roles[name]
        self._started[name] = subprocess.Popen(
            [sys.executable, SCRIPT, json.dumps(PARALLEL)],
            env=os.environ | {"TF_CONFIG": role.tf_config or ""},
            stdout=subprocess.PIPE if name == "chief 0" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill(self, name: str) -> None:
        self._started[name].kill()
        self._started[name].wait()

    def says(self, matches: Callable[[str], bool]) -> str:
        """The chief's next such line."""
        assert self.chief.stdout is not None
        said = []
        for line in self.chief.stdout:
            said.append(line)
            if matches(line):
                return line
        raise AssertionError("".join(said)[-3000:])

    def report(self) -> dict[str, Any]:
        """The chief's next one."""
        return json.loads(self.says(lambda line: line.startswith("{")))

    def end(self) -> None:
        self._timer.cancel()
        for process in self._started.values():
            process.kill()


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.end()


@pytest.mark.full  # the drill kills a worker that parameter servers serve, too
def test_who_is_lost_and_who_comes_back(processes):
    start = processes.report()
    assert [device[:26] for device in start["devices"]] == [
        "/job:ps/replica:0/task:0/d",
        "/job:ps/replica:0/task:1/d",
    ]
    counted = 0

    def go_on(calls: int) -> None:
        nonlocal counted
        for _ in range(calls):
            report = processes.report()
            counted += start["steps"]
            assert report["step"] == report["batches"] == counted
            assert report["repeated"] in (0, 1, 2), "one for each worker that was lost, at most"
            assert report["loss"] == pytest.approx(start["expected"], rel=1e-5)

    go_on(2)
    processes.kill("worker 1")
    go_on(5)
    processes.start("worker 1")
    processes.says(lambda line: "has been recovered" in line)
    processes.kill("worker 0")
    counted = processes.report()["step"]  # of calls during the recovery, the test has seen none
    go_on(5)  # all of it by the worker that came back

    processes.kill("ps 1")
    assert processes.chief.stdout is not None
    said = processes.chief.stdout.read()
    assert "UnavailableError" in said
    assert "/job:ps" in said
    assert processes.chief.wait() == 1
