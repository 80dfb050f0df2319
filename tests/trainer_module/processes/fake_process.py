"""Stands in for a training's process: python fake_process.py FOLDER DESCRIPTOR

FOLDER/plan.json says for each role what it does in its first, second, … life; the last stays.
Every life leaves a line in FOLDER/lives, and waits until each process of the cluster has one:
as many as itself, where a loss restarts all.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time

from stagecraft.trainer_module.processes import events
from stagecraft.trainer_module.processes.process import end_with_parent

folder, descriptor = pathlib.Path(sys.argv[1]), int(sys.argv[2])
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
name = f"{task['type']} {task['index']}"
end_with_parent()
with (folder / "lives").open("a") as lives:
    lives.write(f"{name} {os.getpid()}\n")


def lives_of(name: str) -> int:
    return sum(line.startswith(name) for line in (folder / "lives").read_text().splitlines())


life = lives_of(name)
plans = json.loads((folder / "plan.json").read_text())
plan = plans.get(name, ["done"])
what = plan[min(life, len(plan)) - 1]


def tell(event: str, **fields: object) -> None:
    events.write(descriptor, {"event": event, **fields})


def forever() -> None:
    while True:
        tell("beat")
        time.sleep(0.05)


with (folder / "scratches").open("a") as scratches:
    scratches.write(f"{tempfile.mkdtemp()}\n")
everyone = [f"{job} {i}" for job, hosts in config["cluster"].items() for i in range(len(hosts))]
together = name in everyone and "ps" not in config["cluster"]  # they are restarted together
while not all(lives_of(each) >= (life if together else 1) for each in everyone):
    tell("beat")
    time.sleep(0.02)
print(f"{name} does: {what}", flush=True)
tell("started")
tell("progress", phase="train", step=life)
if what == "done":
    tell("done")
elif what == "for good":
    tell("failed", message="train.model: no such model", refused=True)
    sys.exit(1)
elif what == "lost peer":
    tell("failed", message="UnavailableError: connection reset")
    sys.exit(138)
elif what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif what == "freeze":
    os.kill(os.getpid(), signal.SIGSTOP)
elif what == "save":  # as a training does when it is asked to end
    signal.signal(signal.SIGTERM, lambda *_: ((folder / f"{name} saved").touch(), sys.exit(143)))
    (folder / f"{name} would save").touch()
    forever()
elif what == "leave a child":  # which has the pipe, as one that multiprocessing forks
    child = os.fork()
    if child:
        (folder / "child").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
elif what == "close":  # and live on
    os.close(descriptor)
    time.sleep(600)
elif what == "done, and die":
    tell("done")
    os.kill(os.getpid(), signal.SIGSEGV)
elif what == "done, and stay":
    tell("done")
    forever()
elif what == "error of TensorFlow's":
    tell("failed", message="InternalError: ring aborted")
    sys.exit(1)
elif what == "forever":
    forever()
elif what.startswith("until "):  # NAME,NAME… have lived so often, and all others have come to life
    names, _, often = what.removeprefix("until ").rpartition(" ")
    while min(map(lives_of, names.split(","))) < int(often) or not all(map(lives_of, plans)):
        tell("beat")
        time.sleep(0.05)
    tell("done")
elif what == "unstarted":
    sys.exit(7)
