import contextlib
import subprocess
import sys

import pytest

HOLD = (
    "import pathlib, sys; from stagecraft.pipeline.local import lock\n"
    "with lock.held(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def another_run(tmp_path):
    """``with another_run() as process``: it holds ``tmp_path`` until its standard input ends."""

    @contextlib.contextmanager
    def another_run():
        command = [sys.executable, "-c", HOLD, tmp_path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            assert process.stdout.readline() == b"held\n"
            yield process

    return another_run
