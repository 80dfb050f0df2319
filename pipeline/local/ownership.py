"""Whether an output folder belongs to another pipeline. Imports neither TensorFlow nor TFX.

Two runs are runs of the same pipeline if they have the same name, task and target. Each other
setting may change from run to run: data, model, training, topology, thresholds.
"""

from __future__ import annotations

import os
import pathlib

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import file, run_metadata
from stagecraft.components.pusher import owner
from stagecraft.pipeline.local import layout
from stagecraft.pipeline.settings import PipelineSettings


class ForeignOutputError(UserError):
    """The output folder has runs of another pipeline."""

    def __init__(self, output: pathlib.Path, pipeline: str, name: str):
        """``pipeline``: of the newest run; ``name``: of the run to be started."""
        use = f"runs/{name}"
        super().__init__(
            f"--output: {output} has runs of the pipeline {pipeline!r}. A run of {name!r} would "
            f"mix its metadata, checkpoints and served models with theirs; use --output {use}",
            setting="--output",
            value=str(output),
            suggestion=use,
            file=str(layout.metadata_db(output)),
        )
        self.pipeline = pipeline


def owner_of(settings: PipelineSettings) -> owner.Owner:
    """Name, task and target of a pipeline, by the names of the settings."""
    label = getattr(settings.task.found, "label", None)
    target = (
        {"data.dataset": settings.data.dataset, "data.label": settings.data.label}
        if label is None
        else {"task.args.label": str(label)}
    )
    return {"name": settings.name, "task.name": settings.task.name, **target}


def check(settings: PipelineSettings, output: pathlib.Path) -> None:
    """Refuses an output folder of another pipeline, and a folder of its served models.

    Raises:
        ForeignOutputError: the newest run in the folder is of a pipeline with another name.
        ForeignVersionError: the newest served model is of another pipeline.
    """
    pipeline = _newest_pipeline(layout.metadata_db(output))
    if pipeline not in ("", settings.name):
        raise ForeignOutputError(output, pipeline, settings.name)
    serving = layout.serving(output, settings.push.directory)
    if "://" not in serving:  # the Pusher checks an object store, which takes seconds to open
        owner.check(serving, owner_of(settings))


def _newest_pipeline(metadata_db: pathlib.Path) -> str:
    """Name of the pipeline of the newest run; empty if there is none."""
    if not metadata_db.exists() or not os.path.getsize(metadata_db):
        return ""
    store = file.open_store(metadata_db)
    for run in run_metadata.run_contexts(metadata_db):
        if pipeline := run_metadata.RunMetadata(store, run).pipeline:
            return pipeline
    return ""
