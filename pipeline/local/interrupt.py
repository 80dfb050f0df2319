"""Ctrl-C and SIGTERM in the process that runs the pipeline.

A signal raises KeyboardInterrupt in the main thread. Beam turns it into a RuntimeError, and other
code may swallow it; therefore this module also remembers the signal. If a training runs in this
process, the first signal lets it save and end; a second signal does not wait for that.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from stagecraft.trainer_module.processes import preemption

GRACE_SECONDS = 5.0
"""Seconds that a run has to clean up after a signal, before the supervisor kills it."""

_requested = threading.Event()
_deferred = threading.Event()


def requested() -> bool:
    """Whether a signal asked this run to stop."""
    return _requested.is_set()


@contextlib.contextmanager
def taken(handler: Callable[[int, FrameType | None], object], *numbers: int) -> Iterator[None]:
    """Gives signals to a handler in the block, except those that the process ignores."""
    stock = {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) != signal.SIG_IGN  # nohup, a shell's background job
    }
    try:
        yield
    finally:
        for number, before in stock.items():
            signal.signal(number, before)


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Makes SIGINT and SIGTERM raise KeyboardInterrupt and set :func:`requested` in the block.

    A training that checks ``preemption`` raises it after it has saved. Outside the main thread,
    where Python allows no handlers, this does nothing. Blocks may nest.
    """
    numbers = signal.SIGINT, signal.SIGTERM
    main = threading.current_thread() is threading.main_thread()
    if not main or _on_signal in map(signal.getsignal, numbers):
        yield
        return
    _requested.clear()
    with taken(_on_signal, *numbers):
        yield


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Makes signals only set :func:`requested` in the block, such as one that cleans up."""
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
