"""Puts an earlier version of a model on top of the newer ones."""

from __future__ import annotations

import datetime
import getpass
import json
import os
import posixpath
import time
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.rollbacks import Rollback
from stagecraft.components.object_store import filesystem
from stagecraft.components.pusher import owner, versions

FILE = "rollback.json"
"""In a version that a user rolled back to: what it is a copy of, who made it, and why."""


def roll_back(folder: str, reason: str, to: int | None = None) -> Rollback:
    """Copies an earlier version to the highest number, atomically as the Pusher does.

    TensorFlow Serving serves the highest version, so the newer versions can stay where they are.

    Args:
        folder: of versions: a path, or an address of an object store.
        to: default: the newest whole version of the same pipeline with another model than the
            served one, and that nobody has rolled back from.

    Raises:
        UserError: there is no such version, it is damaged, or the copy cannot be written.
    """
    if "://" in folder:
        filesystem.register()
    with versions.explained(folder):
        known = versions.complete(folder)
        if not known:
            raise UserError(f"{folder}: has no version to roll back to.", file=folder)
        made = {number: of(folder, number) for number in known}
        restored = _last_good(folder, made) if to is None else _checked(folder, known, to)
        source = posixpath.join(folder, str(restored))
        rollback = Rollback(0, restored, known[0], _user(), reason, round(time.time(), 3))
        pushed_by = _owner(folder, restored)
    content = rollback._asdict() | {"restored_model": _model(made, restored)}
    del content["version"]
    content["time"] = (
        datetime.datetime.fromtimestamp(rollback.time).astimezone().isoformat("T", "seconds")
    )
    version = versions.write_version(
        source,
        folder,
        json.loads(pushed_by) if pushed_by else None,
        _files(source),
        {FILE: json.dumps(content, indent=1).encode()},
    )
    return rollback._replace(version=version.number)


def of(folder: str, number: int) -> dict[str, Any] | None:
    """The content of a version's ``rollback.json``; None: a run pushed the version."""
    content = filesystem.read(posixpath.join(folder, str(number), FILE))
    return None if content is None else dict(json.loads(content))


Made = dict[int, dict[str, Any] | None]
"""The content of ``rollback.json``, by version, highest first."""


def _model(made: Made, number: int) -> int:
    """The version of which a version is a copy, directly or not; else the version itself."""
    content = made.get(number)
    return int(content["restored_model"]) if content else number


def _owner(folder: str, number: int) -> bytes | None:
    return filesystem.read(posixpath.join(folder, str(number), owner.FILE))


def _last_good(folder: str, made: Made) -> int:
    newest, *earlier = made
    left = {_model(made, content["replaced"]) for content in made.values() if content}
    bad = {*left, _model(made, newest)}
    owners = {number: _owner(folder, number) for number in made}
    damaged = []
    for number in earlier:
        if _model(made, number) in bad or owners[number] != owners[newest]:
            continue
        if not versions.damages_of(posixpath.join(folder, str(number))):
            return number
        damaged.append(number)
    why = [f"{newest} is served"]
    why += [f"{each} is damaged" for each in damaged]
    others = [each for each in earlier if each not in damaged]
    why += [
        f"{each} "
        + (
            "is a copy of it, or of a model that was rolled back from"
            if owners[each] == owners[newest]
            else "is of another pipeline"
        )
        for each in others
    ]
    raise UserError(
        f"{folder}: has no version to roll back to ({'; '.join(why)}). "
        + ("Name one with --to." if others else "Push another model first."),
        setting="--to" if others else "",
        file=folder,
        suggestion=f"--to {others[0]}" if others else "",
    )


def _checked(folder: str, known: list[int], to: int) -> int:
    if to not in known:
        listed = ", ".join(map(str, known))
        raise UserError(
            f"--to: {folder} has no version {to}; versions: {listed}.",
            setting="--to",
            value=to,
            suggestion=listed,
            file=folder,
        )
    if to == known[0]:
        raise UserError(
            f"--to: version {to} is the newest one already, which is served.",
            setting="--to",
            value=to,
            file=folder,
        )
    version = posixpath.join(folder, str(to))
    if damages := versions.damages_of(version):
        path = damages[0].path(version)
        raise UserError(
            f"{path}: {damages[0]}. Name another version with --to.",
            setting="--to",
            value=to,
            file=path,
            record=damages[0].name,
        )
    return to


def _files(version: str) -> dict[str, manifest.File]:
    """The files that the Pusher wrote; all of a version of another program."""
    files = manifest.describe(version)
    text = filesystem.read(posixpath.join(version, manifest.FILE))
    own = files if text is None else json.loads(text)
    return {name: each for name, each in files.items() if name in own and name != FILE}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"user {os.getuid()}"
