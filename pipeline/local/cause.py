"""Explains an exception in one paragraph."""

from __future__ import annotations

import errno
import re

from stagecraft.common import errors, secrets
from stagecraft.common.errors import LIMIT, UserError, cleaned
from stagecraft.common.text import plain

# Beam appends the step to a DoFn's exception, once per nesting.
_BEAM_STEP = re.compile(r"\s*\[while running '[^']*'\]")

# With several workers, Beam raises an exception with the text of the original traceback.
_IN_TEXT = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): (.*)", re.MULTILINE)

_FULL_DISK = re.compile(r"No space left on device|database or disk is full")


def explain(error: BaseException) -> str:
    """The cause of a failure: the message of a UserError, else type, message, file and line."""
    return secrets.redact(plain(_explain(error)))


def _explain(error: BaseException) -> str:
    chain = list(errors.chain(error))
    for link in chain:
        if isinstance(link, UserError):
            return _BEAM_STEP.sub("", str(link)).strip()
    for link in chain:
        if getattr(link, "errno", None) == errno.ENOSPC or _FULL_DISK.search(str(link)):
            return _full_disk(link)
    name, message = type(error).__name__, str(error)
    if "Traceback (most recent call last)" in message:
        name, message = [(name, message), *_IN_TEXT.findall(message)][-1]
    message = _BEAM_STEP.sub("", message)
    if name == UserError.__name__:
        return " ".join(message.split())
    return errors.append(cleaned(f"{name}: {message}" if message.strip() else name), error, LIMIT)


def _full_disk(error: BaseException) -> str:
    path = getattr(error, "filename", None)
    return (
        f"no space left on the disk{f' while writing {path}' if path else ''}; free some space, or "
        "use --output with a folder on a larger disk; the next run reuses all finished results"
    )
