"""A heartbeat of the Trainer's step in the job folder: without it, the job's pods end.

The step may be killed before it can delete its job: Kubeflow's launcher forwards no signals, and
Argo kills a step one second after SIGTERM. ``lease.json`` contains the time until which the pods
may run (``kubeflow.job.lease_seconds``). Clocks of nodes may differ by seconds; the term is
minutes. Leases on checkpoints are in :mod:`stagecraft.components.kubernetes.launch.leases`. Imports
no TensorFlow.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator

from stagecraft.components.object_store.folder import open_folder

NAME = "lease.json"

_log = logging.getLogger(__name__)


def path(folder: str) -> str:
    """Path or address of the file."""
    return f"{folder}/{NAME}"


def renew(folder: str, seconds: float) -> None:
    """Lets the pods run for so many seconds from now."""
    text = json.dumps({"until": time.time() + seconds})
    open_folder(folder).write(NAME, text.encode())


def seconds_left(folder: str) -> float:
    """Seconds that the pods may run; negative when they must end."""
    content = open_folder(folder).read(NAME)
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path(folder))
    return float(json.loads(content)["until"]) - time.time()


@contextlib.contextmanager
def renewed(folder: str, seconds: float) -> Iterator[None]:
    """Renews the heartbeat during the block, ten times per term."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds / 10):
            try:
                renew(folder, seconds)
            except Exception as error:  # nine more tries follow
                _log.warning("%s: the heartbeat was not renewed: %s", path(folder), error)

    renew(folder, seconds)
    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_with(folder: str, every: float = 10.0) -> None:
    """Sends this process SIGTERM when the heartbeat has stopped."""
    until = time.time() + seconds_left(folder)

    def watch() -> None:
        nonlocal until
        while (more := until - time.time()) > 0:
            threading.Event().wait(min(every, max(0.1, more)))
            with contextlib.suppress(Exception):  # a later read may succeed
                until = time.time() + seconds_left(folder)
        _log.error("%s: expired; the Trainer's step has ended", path(folder))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="heartbeat", daemon=True).start()
