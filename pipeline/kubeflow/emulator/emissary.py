"""Runs a command as Argo's emissary does, and ends it when the parent process ends.

``python emissary.py COMMAND …``. SIGTERM goes to the command's process group; the exit code after
signal n is 128 + n. Imports only the standard library, to start fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import FrameType


def main() -> None:
    """Runs the command, and exits with its exit code."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        os.killpg(process.pid, number)

    def end_with_parent() -> None:
        while os.read(0, 1024):
            pass
        os.killpg(process.pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher gets it, too, and sends SIGTERM
    threading.Thread(target=end_with_parent, daemon=True).start()
    code = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the end of a container ends all its processes
    os._exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main()
