"""A process of a training in a pod: ``python -m stagecraft.components.kubernetes.worker FOLDER``.

FOLDER is where all pods of the training see it, and whoever started it, on a volume or in an object
store: ``task.json`` there says what to train (see :mod:`stagecraft.trainer_module.worker`, whose
exit codes these are), and ``lease.json`` until when.
"""

from __future__ import annotations

import sys

from stagecraft.components.kubernetes.job_folder import staging, step_lease
from stagecraft.schemas.errors import TransientError, UserError
from stagecraft.trainer_module import worker
from stagecraft.trainer_module.checkpointing import lock
from stagecraft.trainer_module.processes import exit_codes, preemption


def main(folder: str) -> int:
    """Trains; the process's exit code."""
    preemption.handle_sigterm()  # before threads start
    try:
        if step_lease.left(folder) <= 0:
            print(f"{step_lease.of(folder)}: is over: nobody waits for this training any more")
            return exit_codes.PERMANENT
        step_lease.end_with(folder)
        lock.call_holder(folder.rpartition("/")[2])
        with staging.staged(folder) as task:
            return worker.main(task)
    except FileNotFoundError as error:
        print(
            f"{error.filename}: cannot be read ({error.strerror}): this pod needs the volume with "
            "kubeflow.job.folder, at the same path as the Trainer's step, or the object store"
        )
    except TransientError as error:
        print(error)
        return exit_codes.LOST_PEER
    except (OSError, UserError) as error:
        print(error)
    return exit_codes.PERMANENT


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
