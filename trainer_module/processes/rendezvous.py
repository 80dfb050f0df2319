"""Waits for the other processes of a topology, with a timeout. Imports no TensorFlow.

``tf.distribute`` waits for a missing peer without a message or a timeout. It holds Python's global
lock while it waits, so no thread of this process could end the wait. So the processes meet here
first: each listens at its server's address until all others listen, too.
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
    """Peers are not reachable; the message names them."""


@contextlib.contextmanager
def wait_for_peers(members: Cluster | None, seconds: float) -> Iterator[None]:
    """Waits until all members, if any, listen; then TensorFlow connects to them in the block.

    If the block takes longer than ``seconds``, a peer was lost in between. SIGALRM then ends this
    process with exit code 142.

    Raises:
        PeersMissingError: a peer does not listen in time.
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
        while missing := unreachable(missing):
            if time.monotonic() > deadline:
                names_missing = ", ".join(f"{names[address]} ({address})" for address in missing)
                raise PeersMissingError(
                    f"{names_missing}: not reachable after {seconds:.0f} s "
                    "(parallel.start_timeout_seconds)"
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
        raise PeersMissingError(f"{name}: the port of {address} is in use") from None
    with server:  # peers connect to the queue; accept is not needed
        yield


def _server(host: str, port: int, local: bool) -> socket.socket:
    """Listens at a local address, or at all addresses of this host, as TensorFlow does."""
    if local:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual)


def unreachable(addresses: Iterable[str]) -> list[str]:
    """The addresses (``host:port``) that accept no connection."""
    return [address for address in addresses if not _listens(address)]


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return True
    except OSError:  # unknown host, refused, no answer
        return False
