"""Asks the fork server to run what its name says: see ``fork_server.py``.

Its variables say where: ``FORK_SERVER`` is the socket.
"""

import array
import json
import os
import signal
import socket
import sys


def main() -> int:
    """The program's exit code."""
    here, name = os.path.split(sys.argv[0])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["FORK_SERVER"])
    descriptors = [
        number
        for number in sorted(map(int, os.listdir("/proc/self/fd")))
        if number != connection.fileno() and _is_open(number)
    ]
    request = {
        "name": name,
        "arguments": sys.argv[1:],
        "folder": os.getcwd(),
        "variables": dict(os.environ),
        "python": os.path.join(here, "python"),
        "descriptors": descriptors,
    }
    text = json.dumps(request).encode() + b"\n"
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    sent = connection.sendmsg([text], rights)
    connection.sendall(text[sent:])
    answers = connection.makefile()
    program = int(answers.readline())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
        signal.signal(number, lambda number, frame: os.kill(program, number))
    code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
