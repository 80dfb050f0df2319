"""A worker that computes nothing: ``FAKE`` is JSON, ``{strategy: what it does}``.

``equal`` (the default) writes the reference's numbers, ``differs`` numbers of which one gradient
is twice as large, ``drifts`` replicas of which one is another, ``casts`` notes of layers that stay
float32, ``die`` ends without a word, ``segfault`` dies, ``error`` says what is wrong, ``hang``
starts a process that outlives its parent, tells both ids in ``FAKE_PIDS``, and waits, ``silent``
never gets ready.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

from stagecraft.trainer_module.parity.task import Notes, Task, points, save
from stagecraft.trainer_module.processes.training_task import TrainingTask

task = Task.of(TrainingTask.parsed(sys.stdin.readline()).arguments)
events = int(sys.argv[1])
parallel = task.settings.parallel
behaviour = dict(json.loads(os.environ["FAKE"])).get(parallel.strategy, "equal")


def tell(event: str, **fields: str) -> None:
    os.write(events, json.dumps({"event": event, **fields}).encode() + b"\n")


def arrays() -> dict[str, np.ndarray]:
    twice = 2.0 if behaviour == "differs" else 1.0
    made = {"depth/kernel": np.array(100.0), "nonsmooth_ops": np.array(0)}
    for name in ("trajectory", "float64"):
        made[f"{name}/model/kernel"] = np.ones(3)
    made["amplified/model/kernel"] = np.array(0.0)
    for point in points(task.steps):
        for batch in (0, 1):
            made[f"{point}/gradients/{batch}/kernel"] = np.ones(3, np.float32) * twice
            made[f"{point}/magnitude/{batch}/kernel"] = np.array(2.0)
            made[f"{point}/rounding/{batch}/kernel"] = np.array(0.0)
    return made


role = json.loads(os.environ.get("TF_CONFIG", '{"task": {"type": "worker"}}'))["task"]["type"]
if behaviour == "silent" or (parallel.strategy == "parameter_server" and role != "chief"):
    while True:
        time.sleep(0.05)
tell("started")
tell("phase", phase="float32")
print("noise")
if behaviour == "die":
    sys.exit(4)
if behaviour == "segfault":
    os.kill(os.getpid(), signal.SIGSEGV)
if behaviour == "error":
    tell("failed", message="train.model: cannot be cut")
    sys.exit(1)
if behaviour == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(os.environ["FAKE_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(0.05)
replicas = [{"model/kernel": "a"}] * parallel.replicas
if behaviour == "drifts":
    replicas[-1] = {"model/kernel": "b"}
needs_parts = task.reference is not None or parallel.precision.startswith("mixed")
parts = parallel.parts if needs_parts else 1
low = [f"attention{n}" for n in range(5)] if behaviour == "casts" else []
notes = Notes(parts=parts, has_state=False, replicas=replicas, float32=low)
save(task.out, arrays(), notes)
tell("done")
