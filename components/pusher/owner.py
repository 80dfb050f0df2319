"""Which pipeline pushed a version of a model, so that no other one pushes on top of it.

The Pusher writes ``pushed_by.json`` into each version. Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Mapping

from stagecraft.common.errors import UserError

FILE = "pushed_by.json"

PUSHED_BY = "pushed_by"
"""Key of the Pusher's ``custom_config``: an :data:`Owner`."""

Owner = Mapping[str, str]
"""Values that tell pipelines apart, by the names of settings: ``name``, ``task.name``."""


class ForeignVersionError(UserError):
    """The newest version in a folder is a model of another pipeline."""

    def __init__(self, version: str, pushed_by: Owner, owner: Owner):
        """``pushed_by`` and ``owner``: of the version, and of the model to be pushed."""
        keys = [key for key in owner if owner[key] != pushed_by.get(key)]
        keys += [key for key in pushed_by if key not in owner]
        theirs, ours = (
            ", ".join(f"{key}: {each.get(key, 'none')}" for key in keys)
            for each in (pushed_by, owner)
        )
        folder = posixpath.dirname(version)
        super().__init__(
            f"{version} is a model of another pipeline ({theirs}). A model of this one ({ours}) "
            "would replace it for all clients. Use another --output or push.directory, or move the "
            "old versions away.",
            setting="push.directory",
            value=folder,
            suggestion="--output",
            file=version,
        )
        self.pushed_by, self.owner = dict(pushed_by), dict(owner)


def is_version(name: str) -> bool:
    """Whether the name of a folder's entry is that of a version."""
    return re.fullmatch("[0-9]{1,19}", name) is not None


def newest(names: Iterable[str]) -> str | None:
    """The highest version among the names of a folder's entries."""
    return max(filter(is_version, names), key=int, default=None)


def check(folder: str, owner: Owner) -> None:
    """Refuses a folder whose newest version is of another pipeline.

    A version without ``pushed_by.json``, of another program or an earlier Stagecraft, passes.

    Args:
        folder: of versions: a path, or an address of an object store. It may be missing.
        owner: of the model to be pushed.

    Raises:
        ForeignVersionError: as said.
    """
    text, version = _newest_text(folder)
    if text is None:
        return
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    pushed_by = dict(found) if isinstance(found, dict) else {}
    if pushed_by != dict(owner):
        raise ForeignVersionError(version, pushed_by, owner)


def _newest_text(folder: str) -> tuple[str | None, str]:
    """The newest version's ``pushed_by.json`` (None: there is none), and its path."""
    if "://" in folder:
        from tfx.dsl.io import fileio  # takes seconds

        from stagecraft.components.object_store import filesystem

        filesystem.register()
        if not fileio.isdir(folder):
            return None, ""
        names = [name.rstrip("/") for name in fileio.listdir(folder)]
        exists, opened = fileio.exists, fileio.open
    else:
        try:
            names = os.listdir(folder)
        except OSError:  # missing, or a file: the push says so
            return None, ""
        exists, opened = os.path.exists, open
    name = newest(names)
    version = posixpath.join(folder, name or "")
    path = posixpath.join(version, FILE)
    if name is None or not exists(path):
        return None, version
    with opened(path) as file:
        return file.read(), version
