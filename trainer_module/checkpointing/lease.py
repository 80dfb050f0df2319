"""A lease on a folder of checkpoints: one training holds it, whichever machine it runs on.

Each place that keeps leases has two operations: read, and a write that fails if anybody wrote since
the read (compare and swap). Of any number of trainings that find the same free or expired lease,
one writes, and the others see a :class:`Conflict`. Nothing else is needed, and nobody waits.

The holder renews its lease until it releases it. A holder that cannot renew stops writing before
the lease is over (:meth:`Lease.check`); another one may take it then. Clocks of machines may differ
by less than ``grace``. Imports no TensorFlow.
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

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing.lease_record import (
    Holder,
    LeaseHeldError,
    LeaseLostError,
    Record,
    clock_time,
    machine,
)

_TRIES = 20
"""Of a claim, each after somebody else has written."""

_log = logging.getLogger(__name__)


class Conflict(Exception):
    """Somebody else has written since the lease was read."""


class Lease(abc.ABC):
    """A lease at a place. One object is one training's.

    Implementations have :meth:`read` and :meth:`write`. Any thread may call the others.
    """

    def __init__(self, place: str, *, name: str = "", seconds: float, grace: float):
        """Asks nothing yet.

        Args:
            place: the folder of checkpoints, for people.
            name: of the holder. One of the same name may take the lease at any time; the one
                that had it is then told that it has lost it.
            seconds: how long the holder may write after it has renewed.
            grace: seconds from then on until others may take the lease.
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
        """What is there, and its version for :meth:`write`; None and None where nothing is.

        Raises:
            UserError: the place cannot be reached, or may not be read.
        """

    @abc.abstractmethod
    def write(self, record: Record, version: str | None) -> str:
        """Writes if the version is still the same, in one atomic step; the new version.

        Raises:
            Conflict: somebody else has written.
            UserError: the place cannot be reached, or may not be written.
        """

    def claim(self, may_replace: Callable[[Record], bool] = lambda record: False) -> None:
        """Takes the lease.

        Args:
            may_replace: says of one that is not over whether its holder is known to be dead.

        Raises:
            LeaseHeldError: another one has it.
            UserError: the place cannot be reached, or may not be written.
        """
        for tries in range(_TRIES):
            found, version = self.read()
            if found and not (found.is_over or self._is_same(found) or may_replace(found)):
                raise LeaseHeldError(self.place, found.holder, found.until)
            try:
                self._put(version)
                return
            except Conflict:
                time.sleep(random.uniform(0, 0.02 * tries))
        raise UserError(f"{self.place}: its lease cannot be taken: others keep changing it; retry")

    def renew(self) -> None:
        """Has the lease run for ``seconds`` from now.

        Raises:
            LeaseLostError: another one has it.
            UserError: the place cannot be reached.
        """
        with self._writing:
            self._raise_lost()
            try:
                self._put(self._version)
            except Conflict:
                found, _ = self.read()
                who = f"{found.holder} has it now" if found else "it was removed"
                self._lost = LeaseLostError(self.place, who, found.holder if found else None)
                raise self._lost from None

    def check(self) -> None:
        """Has to pass before anything is written: only the holder may.

        Raises:
            LeaseLostError: another one has it, or may have it soon, as it cannot be renewed.
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
                why = f"not renewed for {silent:.0f} s: {self._failure}"
                self._lost = LeaseLostError(self.place, why)
                raise self._lost

    def release(self, after: float = 0.0) -> None:
        """Ends the lease; another one may take it so many seconds from now.

        Raises:
            UserError: the place cannot be reached.
        """
        with self._writing:
            if self._lost is None:
                with contextlib.suppress(Conflict):
                    self._end(after)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews during the block, ten times in each term, in a thread."""
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(self.seconds / 10):
                try:
                    self.renew()
                except LeaseLostError as error:
                    _log.error("%s", error)
                    return
                except Exception as error:  # a network's hiccup; nine more tries
                    self._failure = error
                    _log.warning("%s: the lease was not renewed: %s", self.place, error)

        thread = threading.Thread(target=go_on, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def check_held_by(self, name: str) -> None:
        """As :meth:`check`, of a process that another one holds the lease for.

        Args:
            name: of that holder. Where nobody ever claimed the lease, there is nothing to check.

        Raises:
            LeaseLostError: another one has it, or it is over.
        """
        found, _ = self.read()
        if found and found.holder.name != name:
            raise LeaseLostError(self.place, f"{found.holder} has it now", found.holder)
        if found and found.is_over:
            raise LeaseLostError(self.place, f"not renewed; over at {clock_time(found.until)}")

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
                # Of a request that was sent twice, the second one finds the first one's work.
                found, there = self.read()
                if found != record:
                    raise
                self._version = there
            self._renewed = begun

    def _is_same(self, found: Record) -> bool:
        return bool(self.holder.name) and found.holder.name == self.holder.name

    def _raise_lost(self) -> None:
        if self._lost is not None:
            raise self._lost


def _clock() -> float:
    """Seconds that go on while the machine sleeps, as those of everybody else do."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
