"""A Python that has imported everything already, and forks for each program that it is to run.

A page's commands start a dozen interpreters, each of which would import TensorFlow and TFX for ten
seconds. ``python fork_server.py SOCKET MODULE…`` imports them once. ``client.py``, which stands on
the path as ``python``, ``stagecraft`` and ``tfx``, hands over its arguments, variables, folder and
open files.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from typing import Any

HIGH = 200
"""Descriptors from here on are this file's own; those of a program lie below."""

LARGEST_REQUEST = 1 << 20


def main(path: str, *modules: str) -> None:
    """Serves for as long as standard input is open."""
    for module in modules:
        importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked here
    print("ready", flush=True)
    watch = threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True)
    watch.start()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                _serve(connection)
            finally:
                os._exit(70)


def _serve(connection: socket.socket) -> None:
    """One client: forks again, so that there is a parent to wait for the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, descriptors = _receive(connection)
    connection = socket.socket(fileno=fcntl.fcntl(connection.detach(), fcntl.F_DUPFD_CLOEXEC, HIGH))
    held = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH) for number in descriptors]
    os.closerange(0, HIGH)
    for source, number in zip(held, request["descriptors"], strict=True):
        os.dup2(source, number)
        os.close(source)
    program = os.fork()
    if program == 0:
        connection.close()
        _become(request)
    for number in request["descriptors"]:
        os.close(number)
    connection.sendall(f"{program}\n".encode())
    threading.Thread(target=_end_with, args=(connection, program), daemon=True).start()
    _, status = os.waitpid(program, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size = array.array("i").itemsize
    text, extra, _, _ = connection.recvmsg(LARGEST_REQUEST, socket.CMSG_LEN(64 * size))
    descriptors = array.array("i")
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data)
    while not text.endswith(b"\n"):
        text += connection.recv(LARGEST_REQUEST)
    return json.loads(text), list(descriptors)


def _end_with(connection: socket.socket, program: int) -> None:
    """Kills the program when its client is gone, as who killed that one meant."""
    while connection.recv(64):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.kill(program, signal.SIGKILL)


def _become(request: dict[str, Any]) -> None:
    """Is the program, from here to its end."""
    atexit._clear()  # what modules asked for when they were imported is the server's
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    sys.executable = request["python"]
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering=1, closefd=False)
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [path for path in added if path not in sys.path]
    code = 0
    try:
        _run(request["name"], request["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(Exception):
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run(name: str, arguments: list[str]) -> None:
    if name != "python":
        module, function = {
            "stagecraft": ("stagecraft.pipeline.cli.main", "main"),
            "tfx": ("tfx.tools.cli.cli_main", "cli_group"),
        }[name]
        sys.argv = [name, *arguments]
        getattr(importlib.import_module(module), function)()
        return
    while arguments[0] in ("-W", "-I", "-u"):
        arguments = arguments[2 if arguments[0] == "-W" else 1 :]
    first, *rest = arguments
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
