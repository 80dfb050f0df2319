"""The Pusher component."""

from __future__ import annotations

from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec

from stagecraft.components.pusher import executor


class Pusher(component.Pusher):
    """Takes and gives what ``tfx.components.Pusher`` does; only the writing is another.

    A version appears in the folder whole or not at all, and its number is above all others. See
    :func:`stagecraft.components.pusher.versions.write_version`.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
