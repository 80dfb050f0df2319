"""Waiting for the other processes, and not for ever. Imports no TensorFlow.

``tf.distribute`` waits for a peer that never comes without a word, and holds Python's lock while
it does, so that no thread of this process could end that. So the processes meet here first: each
listens where its server will be, until it has seen all others listen.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import time
from collections.abc import Iterable, Iterator

from stagecraft.trainer_module.parallel.cluster import Cluster
from stagecraft.trainer_module.processes import loopback

_PROBE_SECONDS = 2.0
_PAUSE_SECONDS = 0.2


class PeersMissingError(Exception):
    """Not all processes of a topology have come; the message names those that have not."""


@contextlib.contextmanager
def meeting(members: Cluster | None, seconds: float) -> Iterator[None]:
    """Waits for all members; then the block, in which TensorFlow waits, may take as long again.

    If that takes longer, a peer was lost in between, and SIGALRM ends this process: exit code 142.

    Args:
        members: this process's, and it one of them; None: nobody is waited for.
        seconds: how long it may take until all are there.

    Raises:
        PeersMissingError: not all have come.
    """
    if members is None:
        yield
        return
    _meet(members, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _meet(members: Cluster, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    names = {address: name for name, address in members.peers().items()}
    with _listening(names.pop(members.address), members.address):
        missing = list(names)
        while missing := absent(missing):
            if time.monotonic() > deadline:
                who = ", ".join(f"{names[address]} ({address})" for address in missing)
                raise PeersMissingError(
                    f"{who}: not there after {seconds:.0f} s (parallel.start_timeout_seconds)"
                )
            time.sleep(_PAUSE_SECONDS)


@contextlib.contextmanager
def _listening(name: str, address: str) -> Iterator[None]:
    host, _, text = address.rpartition(":")
    try:
        server = _server(host.strip("[]"), int(text), loopback.is_local(address))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PeersMissingError(f"{name}: the port of {address} is taken") from None
    with server:  # who connects waits in the queue, which is enough to have been seen
        yield


def _server(host: str, port: int, local: bool) -> socket.socket:
    """Listens at a local address alone, or else at all addresses of this host, as TensorFlow does.

    The address behind another host name need not be this host's own: it can be a load balancer's.
    """
    if local:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual)


def absent(addresses: Iterable[str]) -> list[str]:
    """Those of ``host:port`` that take no connection."""
    return [address for address in addresses if not _listens(address)]


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return True
    except OSError:  # unknown host, refused, no answer
        return False
