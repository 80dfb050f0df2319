"""Checks the members of an archive."""

from __future__ import annotations

import tarfile

from stagecraft.schemas.errors import UserError

_LONGEST_NAME = 255  # bytes: NAME_MAX of Linux


def check(source: str, member: tarfile.TarInfo) -> None:
    """Refuses a member that is unsafe to unpack: the archive is malicious."""
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise _unsafe(source, member.name, "would be unpacked outside its folder")
    if any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in member.name.split("/")):
        raise _unsafe(source, member.name[:40], f"has a name of more than {_LONGEST_NAME} bytes")
    if member.issparse() or not (member.isfile() or member.isdir()):
        kind = "a link" if member.issym() or member.islnk() else "a device or a pipe"
        kind = "a file with holes" if member.issparse() else kind
        raise _unsafe(source, member.name, f"is {kind}, which a CIFAR archive never has")


def _unsafe(source: str, name: str, problem: str) -> UserError:
    return UserError(
        f"{source}: member {name!r} {problem}. Do not unpack this archive; download it from a "
        "trusted source.",
        file=source,
        record=name,
    )
