"""A process of a training in a pod: ``python -m stagecraft.components.kubernetes.worker FOLDER``.

FOLDER is on a volume or in an object store that the Trainer's step and all pods reach. Its
``task.json`` describes the training. Its ``lease.json`` contains the time until which the pods may
run. Exit codes are those of :mod:`stagecraft.trainer_module.worker`.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.kubernetes.job_folder import exchange, heartbeat
from stagecraft.components.object_store.folder import open_folder
from stagecraft.trainer_module import worker
from stagecraft.trainer_module.checkpointing import lock
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.processes import exit_codes, preemption
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import TrainingSettings

PATIENCE_SECONDS = 120.0  # for peers that have finished the same training

_log = logging.getLogger("stagecraft.components.kubernetes.worker")  # not __main__, in a pod


def main(folder: str) -> int:
    """Trains, and returns the exit code."""
    preemption.handle_sigterm()  # before threads start
    try:
        if heartbeat.seconds_left(folder) <= 0:
            print(f"{heartbeat.path(folder)}: expired: no Trainer step waits for this training run")
            return exit_codes.PERMANENT
        heartbeat.end_with(folder)
        lock.call_holder(folder.rpartition("/")[2])
        with exchange.staged(folder) as task:
            settings = TrainingTask.parsed(pathlib.Path(task).read_text()).settings
            code = worker.main(task)
        if code == 0:
            leave(folder, settings)
        return code
    except FileNotFoundError as error:
        print(
            f"{error.filename}: cannot be read ({error.strerror}). This pod needs the same "
            "kubeflow.job.folder as the Trainer step: a volume at the same path, or an object "
            "store."
        )
    except TransientError as error:
        print(error)
        return exit_codes.LOST_PEER
    except (OSError, UserError) as error:
        print(error)
    return exit_codes.PERMANENT


def leave(
    folder: str,
    settings: dict[str, Any],
    sleep: Callable[[float], Any] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Reports in the job folder that this process has succeeded; the chief waits for its peers.

    Controllers end a job with its chief, and delete the pods that still run. A worker that uploads
    its outputs at that moment would leave half of them.

    Args:
        settings: the task's settings, by their flat names.
    """
    if not cluster.is_set():
        return
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    own = f"{task['type']} {task['index']}"
    parallel = TrainingSettings.from_flat(settings).parallel
    count = sum(cluster.jobs(parallel).values())
    # Servers never end, and the chief has read the evaluator's results.
    chief, *peers = (
        role.name
        for role in cluster.roles(parallel, [""] * count)
        if not role.serves and role.job != "evaluator"
    )
    shared = open_folder(folder)
    if own != chief:
        shared.write(_file(own), b"{}")
        return
    begun = monotonic()
    while missing := [peer for peer in peers if shared.read(_file(peer)) is None]:
        if monotonic() - begun > PATIENCE_SECONDS:
            _log.warning("%s did not end within %.0f s", ", ".join(missing), PATIENCE_SECONDS)
            return
        sleep(1.0)


def _file(role: str) -> str:
    return f"ended-{role.replace(' ', '-')}.json"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
