"""A process of a training in a pod: ``python -m stagecraft.components.kubernetes.worker FOLDER``.

FOLDER is on a volume that all pods of the training have, and whoever started it: ``task.json``
there says what to train (see :mod:`stagecraft.trainer_module.worker`, whose exit codes these are),
and ``lease.json`` until when.
"""

from __future__ import annotations

import pathlib
import signal
import sys

from stagecraft.components.kubernetes import lease
from stagecraft.trainer_module import worker
from stagecraft.trainer_module.processes import exit_codes

TASK = "task.json"


def main(folder: str) -> int:
    """Trains; the process's exit code."""
    place = pathlib.Path(folder)
    # Threads started from now on leave it to the one that waits for it (preemption.watch).
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        if lease.left(place) <= 0:
            print(f"{place / lease.NAME}: is over: nobody waits for this training any more")
            return exit_codes.PERMANENT
        lease.end_with(place)
    except OSError as error:
        print(
            f"{error.filename}: cannot be read ({error.strerror}): this pod needs the volume with "
            "kubeflow.job.folder, at the same path as the Trainer's step"
        )
        return exit_codes.PERMANENT
    return worker.main(str(place / TASK))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
