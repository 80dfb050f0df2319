"""How a process of a training says whether it is worth starting again.

As Kubeflow's training operator reads them (``restartPolicy: ExitCode``): 1 to 127 is for good,
128 and above may go better next time. Imports no TensorFlow.
"""

from __future__ import annotations

PERMANENT = 1
"""Data, settings or code: the same would happen again."""

LOST_PEER = 138
"""Another process of the topology is gone; the operator's own "user-defined, retryable"."""

PREEMPTED = 143
"""Asked to end by SIGTERM, after saving."""


def of_status(returncode: int) -> int:
    """An exit code, as a shell has it, of what Python's ``Popen`` says: 128 + n for signal n."""
    return 128 - returncode if returncode < 0 else returncode


def retryable(code: int | None) -> bool:
    """Whether another attempt may end otherwise; None: it has not ended."""
    return code is not None and code >= 128
