"""Whether a process of this machine is running."""

from __future__ import annotations

import os


def runs(process: int) -> bool:
    """Whether there is a process of this number, whoever owns it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user
    return True
