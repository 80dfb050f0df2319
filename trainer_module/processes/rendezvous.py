"""Waiting for the other processes, and not for ever. Imports no TensorFlow.

``tf.distribute`` waits silently for a peer that never comes. Each process's server listens as
soon as it waits itself, so that those missing are the ones that take no connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence

from stagecraft.trainer_module.cluster import Cluster
from stagecraft.trainer_module.processes import events, exit_codes

_PROBE_SECONDS = 2.0

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def deadline(members: Cluster | None, seconds: float) -> Iterator[None]:
    """Ends this process, with the names of those missing, if the block takes too long.

    Args:
        members: whom the block waits for; None: nobody.
        seconds: how long it may.
    """
    if members is None:
        yield
        return
    timer = threading.Timer(seconds, _give_up, [members, seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def missing(addresses: Sequence[str]) -> list[str]:
    """Those of ``host:port`` that take no connection."""
    return [address for address in addresses if not _listens(address)]


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_PROBE_SECONDS):
            return True
    except OSError:  # unknown host, refused, no answer
        return False


def _give_up(members: Cluster, seconds: float) -> None:
    names = {address: name for name, address in members.peers().items()}
    absent = [f"{names[address]} ({address})" for address in missing(list(names))]
    who = ", ".join(absent) or "all processes are there, but at least one is not ready"
    message = (
        f"{who}: not there after {seconds:.0f} s" if absent else f"{who} after {seconds:.0f} s"
    ) + " (parallel.start_timeout_seconds)"
    events.tell("failed", message, message=message)
    logging.shutdown()
    os._exit(exit_codes.LOST_PEER)
