"""Keeps the servers of a training on one machine to that machine. Imports no TensorFlow.

TensorFlow's server knows no password, runs what it is sent, and takes connections at all addresses
of its host: ``GrpcServer`` binds ``0.0.0.0`` whatever the cluster's addresses are
(tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc), and no option or variable changes
that. But the socket is this process's own. Linux lets every process bind a socket of its own to a
device (``SO_BINDTODEVICE`` in socket(7); without privileges since 5.7), also one that listens
already. Bound to ``lo``, it is not there for packets that come by another device.
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
    """Whether ``host:port`` is one of the loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keep(address: str) -> bool:
    """Has this process's server at a local address take connections of this machine alone.

    Args:
        address: ``host:port``; where the host is not local, others have to reach the server.

    Returns:
        False where it cannot be done; a warning says so.
    """
    if not is_local(address):
        return True
    port = int(address.rpartition(":")[2])
    try:
        for listening in _listening(port):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)
    except (AttributeError, OSError) as error:  # another system than Linux, or an old one
        _log.warning(
            "TensorFlow's server listens on port %d of all network interfaces and asks for no "
            "password (it cannot be kept to the loopback interface: %s). Let a firewall close the "
            "ports of this machine, or train where nobody else has access to the network.",
            port,
            error,
        )
        return False
    return True


def _listening(port: int) -> Iterator[socket.socket]:
    """This process's sockets that listen on a port; one that is yielded stays open.

    Raises:
        OSError: this system does not list them.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 1:
                    continue
                if found.getsockname()[1] == port:
                    yield found
