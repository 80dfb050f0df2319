"""Ctrl-C and SIGTERM in the process that runs the pipeline.

A signal raises KeyboardInterrupt in the main thread, wherever that is. It doesn't always arrive:
Beam turns it into a RuntimeError, and code may swallow it. So it is also remembered. A training
in this process is asked to end instead, and saves first; a second signal doesn't wait for that.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from stagecraft.trainer_module.processes import preemption

GRACE_SECONDS = 5.0
"""How long a run may take to clean up after a signal before its process is killed."""

_requested = threading.Event()
_deferred = threading.Event()


def requested() -> bool:
    """Whether this run was asked to stop."""
    return _requested.is_set()


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """In the block, SIGINT and SIGTERM raise KeyboardInterrupt, and :func:`requested` says so.

    A training that asks ``preemption`` raises it itself, once it has saved.

    Does nothing outside the main thread, where Python allows no handlers; leaves signals alone
    that this process was started to ignore. Nests.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stock = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if _on_signal in stock.values():
        yield
        return
    _requested.clear()
    taken = [number for number, handler in stock.items() if handler != signal.SIG_IGN]
    for number in taken:
        signal.signal(number, _on_signal)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, stock[number])


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """In the block (cleaning up), further signals are only remembered."""
    _deferred.set()
    try:
        yield
    finally:
        _deferred.clear()


def _on_signal(number: int, frame: FrameType | None) -> None:
    del number, frame
    again = _requested.is_set()
    _requested.set()
    if _deferred.is_set() or (not again and preemption.request()):
        return
    raise KeyboardInterrupt
