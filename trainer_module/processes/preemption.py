"""Somebody wants this process to end soon. A training saves first. Imports no TensorFlow.

In a process that only trains, :func:`watch` takes SIGTERM. A Python signal handler would wait for
the end of whatever C++ is at, which may be for ever. So the signal is blocked in all threads, and
one thread does nothing but take it. A process that does more has signal handlers of its own, and
its supervisor's patience; they :func:`ask` a training.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator

from stagecraft.trainer_module.processes import exit_codes

GRACE_SECONDS = 25.0
"""Kubernetes kills 30 s after SIGTERM, unless told otherwise."""

_log = logging.getLogger(__name__)
_requested = threading.Event()
_saves = threading.Event()
_trains = threading.Event()
_asked = threading.Event()
_watching = False
_actions: list[Callable[[], None]] = []


class Preempted(Exception):
    """The training was told to stop; it goes on from the checkpoint of its step."""

    def __init__(self, step: int):
        super().__init__(f"stopped after step {step}")
        self.step = step


def requested() -> bool:
    """Whether this process, or the training in it, was asked to end."""
    return _requested.is_set() or _asked.is_set()


def saves() -> None:
    """From now on there is a training that asks :func:`requested`, and saves before it ends."""
    _saves.set()


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """In the block is a training that asks :func:`requested`, and saves before it ends.

    Raises:
        KeyboardInterrupt: :func:`ask` asked it to end; it has saved.
    """
    saves()
    _asked.clear()
    _trains.set()
    try:
        yield
    except Preempted as stopped:
        if not _asked.is_set():
            raise
        _log.warning("Interrupted: saved, and %s", stopped)
    finally:
        _trains.clear()
    if _asked.is_set():  # also where that came with the last of the steps
        _asked.clear()
        raise KeyboardInterrupt


def ask() -> bool:
    """Asks the training in this process to save and to end; whether there is one."""
    if _trains.is_set():
        _asked.set()
        return True
    return False


def before_end(action: Callable[[], None]) -> None:
    """Has something done at SIGTERM, before all else; it must not take long."""
    _actions.append(action)


def watch(grace: float = GRACE_SECONDS) -> None:
    """Begins to watch; call it in the main thread, before libraries start threads of theirs.

    A second call changes nothing.

    Args:
        grace: seconds after which the process ends anyway.
    """
    global _watching
    if _watching:
        return
    _watching = True
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def wait() -> None:
        signal.sigwait([signal.SIGTERM])
        _requested.set()
        for action in _actions:
            try:
                action()
            except Exception:
                _log.exception("SIGTERM")
        if _saves.is_set():
            _log.warning("SIGTERM: saving, and ending within %.0f s", grace)
            threading.Event().wait(grace)
            _log.error("SIGTERM: still not saved after %.0f s", grace)
        os._exit(exit_codes.PREEMPTED)

    threading.Thread(target=wait, name="preemption", daemon=True).start()
