"""The Pusher component."""

from __future__ import annotations

from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec

from stagecraft.components.pusher import executor


class Pusher(component.Pusher):
    """Pushes a blessed model as the highest version of a folder, whole or not at all.

    It takes and gives what ``tfx.components.Pusher`` does. A version is the time in seconds, or one
    more than the highest that is there, so that a clock that was set back hides no new model. The
    Pusher copies the model to a folder whose name is no version, and renames it. In an object
    store, which cannot rename, ``saved_model.pb`` comes last, and a push that fails is removed.

    Its executor raises a UserError where there is no SavedModel, or it cannot be written.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
