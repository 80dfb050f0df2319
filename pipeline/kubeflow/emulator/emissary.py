"""Runs a command as Argo's emissary does, and ends it with whoever started this.

``python emissary.py COMMAND …``. SIGTERM goes to the command's process group; 128 + n is the exit
code after signal n. Imports nothing but Python: it is there before the step is.
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
    """Runs it; ends with its exit code."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        os.killpg(process.pid, number)

    def end_with_parent() -> None:
        while os.read(0, 1024):
            pass
        os.killpg(process.pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the launcher, which sends SIGTERM
    threading.Thread(target=end_with_parent, daemon=True).start()
    code = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # a container's end is the end of all in it
    os._exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main()
