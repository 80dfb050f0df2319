"""The checkpoint that a training goes on from, the same one on all workers."""

from __future__ import annotations

import logging

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoints import (
    Checkpoint,
    Checkpoints,
    UnreadableCheckpointError,
)
from stagecraft.trainer_module.engines.base import Engine

_log = logging.getLogger(__name__)


def find(
    checkpoints: Checkpoints, engine: Engine, settings: resume.Flat, chief: bool
) -> Checkpoint | None:
    """The newest checkpoint that can be read, if the training can go on from it; all call it.

    Those of a finished training with other settings are removed: its model is exported.

    Args:
        checkpoints: of this training.
        engine: asks the other workers.
        settings: :func:`resume.resolved`.
        chief: whether this worker decides which one it is.

    Raises:
        UserError: an unfinished training with other settings left it, or only the chief can read
            it.
    """
    found = _newest(checkpoints, engine, chief)
    if found is None:
        return None
    changed = resume.changes(found.progress["settings"], settings, found.step)
    if not changed:
        return found
    root = checkpoints.root
    if not found.progress["finished"]:
        raise UserError(resume.refusal(root, found.step, changed))
    engine.sum_over_workers([0.0])  # all have read what is now removed
    checkpoints.clear()
    _log.info(
        "%s: removed the checkpoints of a finished training with other settings (%s); this one "
        "begins at step 0",
        root,
        resume.told(changed),
    )
    return None


def _newest(checkpoints: Checkpoints, engine: Engine, chief: bool) -> Checkpoint | None:
    """What the chief finds."""
    found = checkpoints.newest()
    step = found.step if found else -1
    agreed = int(engine.sum_over_workers([step if chief else 0])[0])
    if agreed == step:
        return found
    if agreed < 0:
        return None
    try:
        return checkpoints.load(agreed)
    except UnreadableCheckpointError as error:
        raise UserError(
            f"{error}: the chief goes on from this checkpoint, and this worker cannot read it; "
            "use a folder that all workers share"
        ) from error
