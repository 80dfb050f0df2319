"""A process of a training, started by the Trainer, by Kubernetes or by hand.

    python -m stagecraft.trainer_module.worker TASK.json [EVENTS]

TASK.json holds a :mod:`~stagecraft.trainer_module.processes.training_task`; ``-`` reads a line of
standard input instead. ``TF_CONFIG`` sets the role of the process, or ``JOB_COMPLETION_INDEX`` in
an Indexed Job of Kubernetes (see :func:`~stagecraft.trainer_module.parallel.cluster.adopt_job`).
EVENTS is an optional file descriptor for :mod:`~stagecraft.trainer_module.processes.events`; the
process then ends when its standard input closes.

Exit codes: 0 done; 1 permanent error in data, settings or code. Retryable: 138 another process was
lost, or a server failed; 128 + n signal n.
"""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import sys
import traceback

from stagecraft.common import errors, garbage_collection
from stagecraft.common.errors import LIMIT, TransientError, UserError, cleaned, said
from stagecraft.trainer_module.processes import events, exit_codes, launcher, preemption, rendezvous
from stagecraft.trainer_module.processes.process import end_with_parent, run_and_exit
from stagecraft.trainer_module.processes.training_task import TrainingTask

_NO_DESCRIPTOR = os.strerror(errno.EMFILE)

_CONNECTIONS = (
    "; the file is not to blame: this process may open no more files (ulimit -n), or other users "
    "of this machine keep many connections to its TensorFlow server (parallel.isolated)"
)


def main(task: str, descriptor: str | None = None) -> int:
    """Runs the task; returns the exit code of the process."""
    preemption.handle_sigterm()
    launcher.begin(task)
    text = _first_line() if task == "-" else pathlib.Path(task).read_text()
    if descriptor is not None:
        end_with_parent()
        events.attach(int(descriptor))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
    try:
        _run(text)
    except Exception as error:
        traceback.print_exc()
        code, message = _classify(error)
        events.emit("failed", message, message=message, refused=isinstance(error, UserError))
        return code
    events.emit("done")
    return 0


def _run(text: str) -> None:
    from stagecraft.trainer_module.parallel import cluster  # Kubernetes's variables

    task = TrainingTask.parsed(text)
    cluster.adopt_job(task.settings)
    with garbage_collection.paused(freeze=True):
        run_fn = task.function()
    run_fn(task.arguments)


def _first_line() -> str:
    line = b""
    while not line.endswith(b"\n") and (read := os.read(0, 1 << 16)):
        line += read
    return line.decode()


def _classify(error: Exception) -> tuple[int, str]:
    """The exit code and the message for an error."""
    if isinstance(error, (TransientError, rendezvous.PeersMissingError)):
        return exit_codes.LOST_PEER, str(error)
    if isinstance(error, UserError):
        return exit_codes.PERMANENT, str(error)
    if isinstance(error, preemption.Preempted):
        return exit_codes.PREEMPTED, str(error)
    if _is_lost_peer(error):
        return exit_codes.LOST_PEER, f"another process was lost ({cleaned(said(error), 300)})"
    message = errors.append(said(error), error, LIMIT)
    if _NO_DESCRIPTOR in message:
        message += _CONNECTIONS
    return exit_codes.PERMANENT, message


def _is_lost_peer(error: Exception) -> bool:
    """Whether TensorFlow raises an error like this one when it loses a process."""
    from stagecraft.trainer_module.parallel import cluster

    tf = sys.modules.get("tensorflow")
    return (
        cluster.is_set()
        and tf is not None
        and isinstance(
            error,
            (
                tf.errors.UnavailableError,
                tf.errors.AbortedError,
                tf.errors.CancelledError,
                tf.errors.DeadlineExceededError,
                # After a peer's restart, and from TensorFlow's health checks.
                tf.errors.FailedPreconditionError,
                tf.errors.InternalError,
            ),
        )
    )


if __name__ == "__main__":
    run_and_exit(lambda: main(*sys.argv[1:]))
