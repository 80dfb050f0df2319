"""Restricts TensorFlow's servers to the loopback interface. Imports no TensorFlow.

TensorFlow's server has no authentication, runs any graph that it receives, and binds ``0.0.0.0``
(tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc); no option changes that. But Linux lets
this process bind its listening socket to a device (``SO_BINDTODEVICE`` in socket(7); without
privileges since 5.7). A socket bound to ``lo`` receives no packets from other devices.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator

_DEVICE = b"lo"

_log = logging.getLogger(__name__)


def is_local(address: str) -> bool:
    """Whether ``host:port`` belongs to the loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def restrict(address: str) -> bool:
    """Lets this process's server accept connections of this machine only; False: impossible."""
    if not is_local(address):
        return True
    port = int(address.rpartition(":")[2])
    try:
        for listening in _listening(port):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)
    except (AttributeError, OSError) as error:  # not Linux, or an old kernel
        _log.warning(
            "The TensorFlow server listens on port %d of all network interfaces, without "
            "authentication (it cannot be bound to the loopback interface: %s). Block this port "
            "with a firewall, or train in a private network.",
            port,
            error,
        )
        return False
    return True


def _listening(port: int) -> Iterator[socket.socket]:
    """This process's sockets that listen on a port; each stays open."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as candidate:
                if candidate.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 1:
                    continue
                if candidate.getsockname()[1] == port:
                    yield candidate
