"""A lease in a file: the pods of a training end by themselves when nobody renews it.

What starts a training may be killed without a chance to delete it: Kubeflow's launcher forwards
no signals, and Argo kills a step a second after it asked. Clocks of nodes may differ by seconds, a
lease is minutes. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import signal
import socket
import threading
import time
from collections.abc import Iterator

NAME = "lease.json"

_log = logging.getLogger(__name__)


def write(file: pathlib.Path, text: str) -> None:
    """Writes a file whole or not at all, whoever else on other machines writes it, too."""
    unfinished = file.with_name(f".{file.name}.{socket.gethostname()}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(file)


def renew(folder: pathlib.Path, seconds: float) -> None:
    """Writes that the lease runs for so long from now."""
    write(folder / NAME, json.dumps({"until": time.time() + seconds}))


def left(folder: pathlib.Path) -> float:
    """Seconds that the lease has still to run; less than 0 when it is over.

    Raises:
        OSError: there is none that can be read.
    """
    return float(json.loads((folder / NAME).read_text())["until"]) - time.time()


@contextlib.contextmanager
def renewed(folder: pathlib.Path, seconds: float) -> Iterator[None]:
    """Renews the lease as long as the block lasts, ten times in each of its terms.

    Raises:
        OSError: it cannot be written to begin with.
    """
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds / 10):
            try:
                renew(folder, seconds)
            except OSError as error:  # a network file system's hiccup; nine more tries
                _log.warning("%s: not renewed: %s", folder / NAME, error)

    renew(folder, seconds)
    thread = threading.Thread(target=go_on, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_with(folder: pathlib.Path, every: float = 10.0) -> None:
    """Sends this process SIGTERM as soon as the lease is over.

    Args:
        folder: where the lease is.
        every: seconds between looks.

    Raises:
        OSError: there is none that can be read.
    """
    until = time.time() + left(folder)

    def look() -> None:
        nonlocal until
        while (more := until - time.time()) > 0:
            threading.Event().wait(min(every, max(0.1, more)))
            # What cannot be read just now is as it was.
            with contextlib.suppress(OSError, ValueError):
                until = time.time() + left(folder)
        _log.error("%s: over; whoever started this training is gone", folder / NAME)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, name="lease", daemon=True).start()
