"""Finds the checkpoint that a training resumes from, the same one on all workers."""

from __future__ import annotations

import logging

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoint_files import (
    Checkpoint,
    UnreadableCheckpointError,
)
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.base import Engine

_log = logging.getLogger(__name__)


def find(
    checkpoints: Checkpoints, engine: Engine, settings: resume.Flat, chief: bool
) -> Checkpoint | None:
    """The newest readable checkpoint, if the training can resume from it; all workers call this.

    If a finished training with other settings left checkpoints, they are removed: its model is
    exported.

    Args:
        settings: :func:`resume.resolved`.
        chief: whether this worker chooses the checkpoint.

    Raises:
        UserError: an unfinished training has other settings, or only the chief can read the
            checkpoint.
    """
    checkpoint = _newest(checkpoints, engine, chief)
    if checkpoint is None:
        return None
    changed = resume.changes(checkpoint.progress["settings"], settings, checkpoint.step)
    if not changed:
        return checkpoint
    root = checkpoints.root
    if not checkpoint.progress["finished"]:
        raise resume.refusal(root, checkpoint.step, changed)
    engine.sum_over_workers([0.0])  # barrier: all workers have read the checkpoints
    checkpoints.clear()
    _log.info(
        "%s: removed the checkpoints of a finished training run with other settings (%s); this "
        "training run begins at step 0",
        root,
        resume.describe(changed),
    )
    return None


def _newest(checkpoints: Checkpoints, engine: Engine, chief: bool) -> Checkpoint | None:
    """The chief's newest checkpoint."""
    newest = checkpoints.newest()
    step = newest.step if newest else -1
    agreed = int(engine.sum_over_workers([step if chief else 0])[0])
    if agreed == step:
        return newest
    if agreed < 0:
        return None
    try:
        return checkpoints.load(agreed)
    except UnreadableCheckpointError as error:
        raise UserError(
            f"{error}: the chief resumes from this checkpoint, and this worker cannot read it; "
            "use a folder that all workers share",
            file=str(checkpoints.root),
        ) from error
