"""A network of their own for the processes of a training on this machine.

TensorFlow's servers have no authentication: who connects to one reads and writes files as its user.
On the loopback interface, that is each user of the machine. So the processes run in a network
namespace (network_namespaces(7)) that has a loopback interface alone. Root makes one directly, and
other users make it in a user namespace (user_namespaces(7)), where the system allows that. Sockets
of files (unix(7)) and mounted volumes stay reachable.

As a program, which imports nothing but the standard library, this file makes the namespaces and
sends them over a socket, or joins them and becomes another program:

    python isolation.py make DESCRIPTOR
    python isolation.py join DESCRIPTOR,DESCRIPTOR PROGRAM ARGUMENT …
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET in linux/sched.h
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914  # SIOCGIFFLAGS, SIOCSIFFLAGS in linux/sockios.h
_UP = 0x1  # IFF_UP in linux/if.h
_REQUEST = "16sH22x"
"""``struct ifreq`` with flags."""

_SECONDS = 30.0
_PROGRAM = (sys.executable, "-I", "-S", __file__)


class IsolationError(Exception):
    """The system does not allow a network of one's own; the message is the reason."""


@dataclasses.dataclass
class Namespace:
    """A network namespace, for :class:`~.process.Process`; it ends with its last process.

    As a context manager it is closed at the end of the block.
    """

    descriptors: tuple[int, ...]
    """Of the user namespace, if there is one, and of the network namespace."""

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs a command in the namespace, with the same process ID."""
        return [*_PROGRAM, "join", ",".join(map(str, self.descriptors)), *words]

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def create() -> Namespace:
    """Makes a network namespace, with a loopback interface that is up.

    Raises:
        IsolationError: the system does not allow it.
    """
    if sys.platform != "linux":
        raise IsolationError(f"{sys.platform} has no network namespaces")
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(_SECONDS)
        words = [*_PROGRAM, "make", str(far.fileno())]
        try:
            done = subprocess.run(
                words, pass_fds=[far.fileno()], capture_output=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IsolationError(str(error)) from None
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise IsolationError("".join(last) or f"exit code {done.returncode}")
        _, descriptors, _, _ = socket.recv_fds(near, 1, 2)
    return Namespace(tuple(descriptors))


@contextlib.contextmanager
def network(allowed: bool, values: Any, tell: Callable[[str], None]) -> Iterator[Namespace | None]:
    """A network for the processes of a training; None: that of this machine.

    Args:
        allowed: ``parallel.isolated``.
        values: arguments of the training. An address among them needs the machine's network.
        tell: called with the reason if there is none.
    """
    namespace = None
    try:
        if not allowed:
            raise IsolationError("parallel.isolated is false")
        if (address := next(_addresses(values), None)) is not None:
            raise IsolationError(f"{address} is on the network")
        namespace = create()
    except IsolationError as error:
        tell(str(error))
    with namespace or contextlib.nullcontext():
        yield namespace


def warning(reason: str) -> str:
    """A sentence for people."""
    return (
        f"no network of its own ({reason}): other users of this machine can read and write your "
        "files through the processes of this training run"
    )


def _addresses(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://", value):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _addresses(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _addresses(each)


def _make(descriptor: int) -> None:
    """Makes the namespaces, and sends them over a socket."""
    names = ["net"]
    try:
        _call("unshare", _NEW_NET)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _call("unshare", _NEW_USER | _NEW_NET)
        # The same numbers as outside, so that files keep their owner.
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        names = ["user", "net"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack(_REQUEST, b"lo", 0)
        _, flags = struct.unpack(_REQUEST, fcntl.ioctl(any_socket, _GET_FLAGS, request))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack(_REQUEST, b"lo", flags | _UP))
    opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
    with socket.socket(fileno=descriptor) as channel:
        socket.send_fds(channel, [b"."], opened)


def _join(descriptors: Sequence[int], words: Sequence[str]) -> None:
    """Joins the namespaces, and becomes another program."""
    for descriptor in descriptors:
        _call("setns", descriptor, 0)
        os.close(descriptor)
    os.execv(words[0], list(words))


def _call(name: str, *arguments: int) -> None:
    """A system call of Linux that Python has from 3.12 on."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        if sys.argv[1] == "make":
            _make(int(sys.argv[2]))
        else:
            _join([int(each) for each in sys.argv[2].split(",")], sys.argv[3:])
    except OSError as failure:
        sys.exit(failure.strerror or str(failure))
