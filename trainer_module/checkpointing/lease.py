"""A lease on a folder of checkpoints: one training holds it, whichever machine it runs on.

A place that keeps leases has two operations: a read, and a write that fails with :class:`Conflict`
if another process wrote since the read (compare and swap). The holder renews its lease until it
releases it. A holder that cannot renew stops writing before the lease expires
(:meth:`Lease.check`); then another training may take it. The clocks of the machines may differ by
less than ``grace``. Imports no TensorFlow.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing.lease_record import (
    Holder,
    LeaseHeldError,
    LeaseLostError,
    Record,
    clock_time,
    machine,
)

_TRIES = 20
"""Attempts at a claim, each after a conflict."""

_PAUSES = random.Random()
"""Separate from the process's generator, from which Keras draws the seeds of weights."""

_log = logging.getLogger(__name__)


class Conflict(Exception):
    """Another process has written since the lease was read."""


class Lease(abc.ABC):
    """A training's lease at a place.

    Subclasses implement :meth:`read` and :meth:`write`. Other methods are thread-safe.
    """

    def __init__(self, place: str, *, name: str = "", seconds: float, grace: float):
        """Reads and writes nothing yet.

        Args:
            place: the folder of checkpoints, for messages.
            name: of the holder. A later holder of the same name may take the lease at any time;
                the earlier one then gets a LeaseLostError.
            seconds: how long the holder may write after it has renewed.
            grace: seconds after that until others may take the lease.
        """
        self.place, self.seconds, self.grace = place, seconds, grace
        since = time.time()
        host, process = socket.gethostname(), os.getpid()
        self.holder = Holder(name=name, host=host, process=process, since=since)
        self._token = uuid.uuid4().hex
        self._version: str | None = None
        self._renewed = -float("inf")
        self._failure: Exception | None = None
        self._lost: LeaseLostError | None = None
        self._writing = threading.RLock()

    @abc.abstractmethod
    def read(self) -> tuple[Record | None, str | None]:
        """The record and its version for :meth:`write`; None and None if there is no lease."""

    @abc.abstractmethod
    def write(self, record: Record, version: str | None) -> str:
        """Writes if the version is still the same, in one atomic step; returns the new version.

        Raises:
            Conflict: another process has written.
            UserError: the place is not reachable, or not writable.
        """

    def claim(self, may_replace: Callable[[Record], bool] = lambda record: False) -> None:
        """Takes the lease; raises a LeaseHeldError if another training holds it.

        ``may_replace``: whether the holder of a record that is not over is known to be dead.
        """
        for tries in range(_TRIES):
            record, version = self.read()
            same = record and self.holder.name and record.holder.name == self.holder.name
            if record and not (same or record.is_over or may_replace(record)):
                raise LeaseHeldError(self.place, record)
            try:
                self._put(version)
                return
            except Conflict:
                time.sleep(_PAUSES.uniform(0, 0.02 * tries))
        raise UserError(
            f"{self.place}: other processes keep changing the lease; run again", file=self.place
        )

    def renew(self) -> None:
        """Extends the lease to ``seconds`` from now; raises a LeaseLostError if it is lost."""
        with self._writing:
            self._raise_lost()
            try:
                self._put(self._version)
            except Conflict:
                record, _ = self.read()
                reason = f"{record.holder} holds it now" if record else "it was removed"
                self._lost = LeaseLostError(self.place, reason, record.holder if record else None)
                raise self._lost from None

    def check(self) -> None:
        """Checks that this training holds the lease; call it before each write.

        Raises a LeaseLostError if another training holds it, or soon may, because renewing fails.
        """
        with self._writing:
            self._raise_lost()
            if _clock() - self._renewed < self.seconds / 2:
                return
            try:
                self.renew()
                return
            except LeaseLostError:
                raise
            except (OSError, UserError) as error:
                self._failure = error
            silent = _clock() - self._renewed
            if silent >= self.seconds:
                reason = f"the lease was not renewed for {silent:.0f} s: {self._failure}"
                self._lost = LeaseLostError(self.place, reason)
                raise self._lost

    def release(self, after: float = 0.0) -> None:
        """Ends the lease; another training may take it ``after`` so many seconds."""
        with self._writing:
            if self._lost is None:
                with contextlib.suppress(Conflict):
                    self._end(after)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """A thread renews the lease during the block, ten times in each term."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(self.seconds / 10):
                try:
                    self.renew()
                except LeaseLostError as error:
                    _log.error("%s", error)
                    return
                except Exception as error:  # a network error; nine more tries
                    self._failure = error
                    _log.warning("%s: the lease was not renewed: %s", self.place, error)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def check_held_by(self, name: str) -> None:
        """Checks like :meth:`check`, in a process whose lease another process, ``name``, holds."""
        record, _ = self.read()
        if record and record.holder.name != name:
            raise LeaseLostError(self.place, f"{record.holder} holds it now", record.holder)
        if record and record.is_over:
            reason = f"the lease was not renewed, and expired at {clock_time(record.until)}"
            raise LeaseLostError(self.place, reason)

    def _end(self, after: float) -> None:
        self._put(self._version, lasts=after)

    def _put(self, version: str | None, lasts: float | None = None) -> None:
        begun = _clock()
        until = time.time() + (self.seconds + self.grace if lasts is None else lasts)
        record = Record(holder=self.holder, until=until, token=self._token, machine=machine())
        with self._writing:
            try:
                self._version = self.write(record, version)
            except Conflict:
                # A request that was sent twice: the second one sees the first one's result.
                current, current_version = self.read()
                if current != record:
                    raise
                self._version = current_version
            self._renewed = begun

    def _raise_lost(self) -> None:
        if self._lost is not None:
            raise self._lost


def _clock() -> float:
    """Seconds of a clock that also runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
