"""The Pusher component."""

from __future__ import annotations

from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec

from stagecraft.components.pusher import executor


class Pusher(component.Pusher):
    """Pushes a blessed model as the highest version of a folder, whole or not at all.

    It has the inputs, outputs and arguments of ``tfx.components.Pusher``. A version is the time in
    seconds, or the highest version plus one: a clock that was set back does not hide a new model.
    The Pusher compares the model with the digests that the Trainer recorded, copies it to a
    temporary folder, reads the copy back, and renames the folder. An object store cannot rename:
    there, the Pusher writes ``saved_model.pb`` last, and removes a failed push. The file
    ``.manifest.json`` in a version has the size and the SHA-256 of each pushed file.

    ``custom_config={"pushed_by": {"name": "my-pipeline"}}`` names the pipeline. The Pusher then
    writes ``pushed_by.json`` into each version, and refuses a folder whose newest version another
    pipeline pushed. A version without the file passes.

    Its executor raises a UserError if the SavedModel is missing or cannot be written, a
    DamagedArtifactError if it is not the one that the Trainer wrote, and a DamagedCopyError if the
    copy differs from it.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
