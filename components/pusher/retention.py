"""Removes old versions of a model."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import posixpath
import uuid
from collections.abc import Mapping

import tensorflow as tf
from tfx.dsl.io import fileio

from stagecraft.components.metadata import manifest
from stagecraft.components.object_store import filesystem
from stagecraft.components.pusher import owner, rollback, versions

_log = logging.getLogger(__name__)


def prune(folder: str, keep: int, pushed_by: owner.Owner | None) -> list[int]:
    """Removes all but the newest versions that a pipeline pushed; returns the removed ones.

    These stay, although they may not be among the newest: the model that a new one is compared
    with, which is the last one that a run pushed before the newest; and each version that a user
    rolled back to. Versions of other pipelines and programs stay, too, and do not count.

    A version disappears at once: on a disk by a rename, in an object store by its
    ``saved_model.pb``. One that cannot be removed stays, with a warning in the log.

    Args:
        folder: of versions: a path, or an address of an object store.
        keep: number of versions, at least 1.
        pushed_by: the pipeline, as :func:`versions.write_version` writes it.
    """
    own = [
        number
        for number in versions.numbers(folder)
        if _pushed_by(posixpath.join(folder, str(number)), pushed_by)
    ]
    # The last two that runs pushed: the newest model, and the one that it was compared with.
    trained = [number for number in own if rollback.of(folder, number) is None]
    staying = {*own[:keep], *trained[:2], *(set(own) - set(trained))}
    removed = []
    for number in sorted(set(own) - staying):
        try:
            _remove(folder, number)
        except (OSError, tf.errors.OpError) as error:
            _log.warning("%s: version %d cannot be removed: %s", folder, number, error)
        else:
            removed.append(number)
    return removed


def _pushed_by(version: str, pushed_by: owner.Owner | None) -> bool:
    if filesystem.read(posixpath.join(version, manifest.FILE)) is None:
        return False
    text = filesystem.read(posixpath.join(version, owner.FILE))
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        return False
    known: Mapping[str, str] | None = None if pushed_by is None else dict(pushed_by)
    return bool(found == known)


def _remove(folder: str, number: int) -> None:
    version = posixpath.join(folder, str(number))
    if "://" not in folder:
        # A name that the Pusher removes later, if this process dies.
        aside = os.path.join(folder, versions.TEMPORARY + uuid.uuid4().hex)
        os.rename(version, aside)
        fileio.rmtree(aside)
        return
    for name in versions.main_files(version):
        fileio.remove(posixpath.join(version, name))
    with contextlib.suppress(NotADirectoryError):  # another push removed the rest
        fileio.rmtree(version)
