"""A worker that runs nothing: ``FAKE`` is a JSON list of what it does, in order.

An object is an event to tell; ``hang`` waits for SIGTERM and then tells of it, ``cancel`` does the
same and first takes a second to cancel a job, ``deaf`` waits and ignores it, ``child`` starts a
process that outlives its parent, ``segfault`` and ``kill`` die, ``noise`` prints, ``spec`` writes
what it was told into its output folder, ``pause`` takes a second, ``scratch`` makes a temporary
file and notes where, ``leave`` ends without a word.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

events = int(sys.argv[1])
spec = json.loads(sys.stdin.readline())
output = pathlib.Path(spec["output"])


def tell(event: dict) -> None:
    os.write(events, json.dumps(event).encode() + b"\n")


def on_term(number, frame) -> None:
    tell({"kind": "end", "status": "interrupted", "cause": None, "report": {}})
    os._exit(1)


def on_term_cancel(number, frame) -> None:
    tell({"kind": "job", "state": "cancelling", "seconds": 20, "job": JOB})
    time.sleep(1)
    tell({"kind": "job", "state": "ended", "job": JOB})
    on_term(number, frame)


JOB = {"name": "mine-1", "engine": "Flink"}

for step in json.loads(os.environ["FAKE"]):
    if isinstance(step, dict):
        tell(step)
    elif step == "noise":
        os.write(1, b"noise on stdout\n")
        os.write(2, b"noise on stderr\n")
    elif step == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (output / "child").write_text(str(child.pid))
    elif step == "spec":
        (output / "spec").write_text(json.dumps(spec))
    elif step == "scratch":
        _, name = tempfile.mkstemp()
        (output / "scratch").write_text(name)
    elif step == "pause":
        time.sleep(1)
    elif step == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif step == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif step == "leave":
        sys.exit(4)
    else:
        handlers = {"hang": on_term, "cancel": on_term_cancel}
        signal.signal(signal.SIGTERM, handlers.get(step, signal.SIG_IGN))
        (output / "hanging").write_text(str(os.getpid()))
        while True:
            time.sleep(0.05)
