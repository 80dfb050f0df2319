"""A process of a training in a pod: ``python -m stagecraft.components.kubernetes.worker FOLDER``.

FOLDER is on a volume or in an object store that the Trainer's step and all pods reach. Its
``task.json`` describes the training. Its ``lease.json`` contains the time until which the pods may
run. Exit codes are those of :mod:`stagecraft.trainer_module.worker`.
"""

from __future__ import annotations

import json
import pathlib
import sys

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.kubernetes.job_folder import heartbeat, last_process, staging
from stagecraft.trainer_module import worker
from stagecraft.trainer_module.checkpointing import lock
from stagecraft.trainer_module.processes import exit_codes, preemption


def main(folder: str) -> int:
    """Trains, and returns the exit code."""
    preemption.handle_sigterm()  # before threads start
    try:
        if heartbeat.seconds_left(folder) <= 0:
            print(f"{heartbeat.path(folder)}: expired: no Trainer step waits for this training run")
            return exit_codes.PERMANENT
        heartbeat.end_with(folder)
        lock.call_holder(folder.rpartition("/")[2])
        with staging.staged(folder) as task:
            settings = json.loads(pathlib.Path(task).read_text())["fn_args"]["custom_config"]
            code = worker.main(task)
        if code == 0:
            last_process.leave(folder, settings["settings"])
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
