"""SIGTERM handling: a training saves a checkpoint before its process ends. Imports no TensorFlow.

In a process that only trains, :func:`handle_sigterm` takes SIGTERM. A Python signal handler would
wait until the current C++ call returns, possibly for ever. So all threads block the signal, and
one thread waits for it. A process that does more than train has signal handlers of its own; they
call :func:`request`.
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
"""Kubernetes kills a pod 30 s after SIGTERM by default."""

_log = logging.getLogger(__name__)
_sigterm = threading.Event()
_saves = threading.Event()
_trains = threading.Event()
_request = threading.Event()
_handled = False
_actions: list[Callable[[], object]] = []


class Preempted(Exception):
    """The training stopped on request; its checkpoint allows it to go on from there."""

    def __init__(self, step: int):
        super().__init__(f"stopped after step {step}")
        self.step = step


def requested() -> bool:
    """Whether this process, or the training in it, should stop."""
    return _sigterm.is_set() or _request.is_set()


def expect_checkpoint() -> None:
    """Makes the SIGTERM handler wait: code that polls :func:`requested` saves and ends."""
    _saves.set()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """The block is a training that polls :func:`requested`, and saves before it ends.

    Raises:
        KeyboardInterrupt: :func:`request` stopped the training, and it has saved.
    """
    expect_checkpoint()
    _request.clear()
    _trains.set()
    try:
        yield
    except Preempted as stopped:
        if not _request.is_set():
            raise
        _log.warning("Interrupted: checkpoint saved, %s", stopped)
    finally:
        _trains.clear()
    if _request.is_set():  # also when the request came during the last step
        _request.clear()
        raise KeyboardInterrupt


def request() -> bool:
    """Asks the training in this process to save and end; returns whether there is one."""
    if trains := _trains.is_set():
        _request.set()
    return trains


def on_sigterm(action: Callable[[], object]) -> None:
    """Registers a short action that runs at SIGTERM before anything else."""
    _actions.append(action)


def handle_sigterm(grace: float = GRACE_SECONDS) -> None:
    """Installs the handler. Call it in the main thread, before libraries start threads.

    A second call changes nothing. ``grace`` seconds after SIGTERM the process ends, saved or not.
    """
    global _handled
    if _handled:
        return
    _handled = True
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def wait() -> None:
        signal.sigwait([signal.SIGTERM])
        _sigterm.set()
        for action in _actions:
            try:
                action()
            except Exception:
                _log.exception("SIGTERM")
        if _saves.is_set():
            _log.warning("SIGTERM: saving a checkpoint; the process ends within %.0f s", grace)
            threading.Event().wait(grace)
            _log.error("SIGTERM: no checkpoint after %.0f s", grace)
        os._exit(exit_codes.PREEMPTED)

    threading.Thread(target=wait, name="preemption", daemon=True).start()
