"""How a process ends."""

import os
import signal
import subprocess
import sys

import pytest

ENDS = {
    "a code": ("return 7", 7, ""),
    "an error": ("raise ValueError('wrong')", 1, "ValueError: wrong"),
    "exit": ("sys.exit(5)", 5, ""),
    "exit with a message": ("sys.exit('wrong')", 1, "wrong"),
    "exit with nothing": ("sys.exit()", 0, ""),
}


def run(body: str, start: str = "") -> subprocess.CompletedProcess[str]:
    script = "\n".join(
        (
            "import atexit, sys, threading, time",
            "from stagecraft.trainer_module.processes import process",
            start,
            "def main():",
            *(f"    {line}" for line in body.splitlines()),
            "process.run_and_exit(main)",
        )
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )


@pytest.mark.parametrize("name", ENDS)
def test_the_exit_code_is_that_of_python(name):
    body, code, message = ENDS[name]
    done = run(body)
    assert done.returncode == code and message in done.stderr


def test_threads_and_exit_functions_come_first():
    """Text that they print reaches a pipe, whose buffer nobody else writes."""
    body = """
def work():
    time.sleep(0.2)
    print("thread")
threading.Thread(target=work).start()
atexit.register(print, "exit function")
process.skip_destruction()
return 0
"""
    done = run(body)
    assert done.returncode == 0 and done.stdout.splitlines() == ["thread", "exit function"]


def test_no_object_of_a_module_is_destroyed():
    body = "def __del__(self): os._exit(9)"
    start = f"import os\nprocess.skip_destruction()\nclass Kept:\n    {body}\nkept = Kept()"
    assert run("return 3", start).returncode == 3


def test_an_interrupt_stays_one():
    done = run("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)")
    assert done.returncode == -signal.SIGINT
