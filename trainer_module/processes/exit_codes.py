"""Exit codes of a training's process: they say whether a restart may help.

Kubeflow's training operator reads them (``restartPolicy: ExitCode``): 1 to 127 is a permanent
error, 128 and above is retryable. Imports no TensorFlow.
"""

from __future__ import annotations

PERMANENT = 1
"""An error in data, settings or code: it would happen again."""

START_ERROR = 128
"""Kubernetes: the container's command could not be started, as StartError says."""

LOST_PEER = 138
"""Another process of the topology is gone. The training operator retries after this code."""

PREEMPTED = 143
"""SIGTERM ended the process, after it saved."""


def of_status(returncode: int) -> int:
    """Converts ``Popen.returncode`` into a shell's exit code: 128 + n for signal n."""
    return 128 - returncode if returncode < 0 else returncode


def retryable(code: int | None) -> bool:
    """Whether another attempt may succeed; False for None, a process that is running."""
    return code is not None and code > START_ERROR
