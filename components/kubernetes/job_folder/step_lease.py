"""A lease in a training's folder, on a volume or in a store: its pods end when nobody renews it.

It keeps nobody out; :mod:`stagecraft.components.kubernetes.launch.leases` does. A process that
starts a training may be killed before it can delete the training: Kubeflow's launcher forwards no
signals, and Argo kills a step one second after SIGTERM. Clocks of nodes may differ by seconds; a
lease takes minutes. Imports no TensorFlow.
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
from typing import Any

from stagecraft.components.kubernetes.job_folder import shared_folder

NAME = "lease.json"

_log = logging.getLogger(__name__)


def of(folder: str) -> str:
    """Path or address of the lease in a folder."""
    return f"{folder}/{NAME}"


def renew(folder: str, seconds: float) -> None:
    """Writes that the lease runs for so long from now.

    Raises:
        UserError: it cannot be written.
    """
    text = json.dumps({"until": time.time() + seconds})
    shared_folder.at(folder).write(NAME, text.encode())


def left(folder: str) -> float:
    """Seconds that the lease has still to run; less than 0 when it is over.

    Raises:
        OSError: there is none that can be read.
        UserError: the object store cannot be used.
    """
    return float(_read(folder)["until"]) - time.time()


@contextlib.contextmanager
def renewed(folder: str, seconds: float) -> Iterator[None]:
    """Renews the lease as long as the block lasts, ten times in each of its terms.

    Raises:
        UserError: it cannot be written to begin with.
    """
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds / 10):
            try:
                renew(folder, seconds)
            except Exception as error:  # a network's hiccup; nine more tries
                _log.warning("%s: not renewed: %s", of(folder), error)

    renew(folder, seconds)
    thread = threading.Thread(target=go_on, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_with(folder: str, every: float = 10.0) -> None:
    """Sends this process SIGTERM as soon as the lease is over.

    Args:
        folder: where the lease is.
        every: seconds between looks.

    Raises:
        OSError: there is none that can be read.
        UserError: the object store cannot be used.
    """
    until = time.time() + left(folder)

    def look() -> None:
        nonlocal until
        while (more := until - time.time()) > 0:
            threading.Event().wait(min(every, max(0.1, more)))
            # What cannot be read just now is as it was.
            with contextlib.suppress(Exception):
                until = time.time() + left(folder)
        _log.error("%s: over; whoever started this training is gone", of(folder))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, name="lease", daemon=True).start()


def _read(folder: str) -> dict[str, Any]:
    content = shared_folder.at(folder).read(NAME)
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), of(folder))
    found: dict[str, Any] = json.loads(content)
    return found
