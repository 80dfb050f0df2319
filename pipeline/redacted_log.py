"""A log without secrets: TFX and Beam log arguments, addresses and execution properties."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence

from stagecraft.schemas import secrets


class Redaction:
    """Leaves out of a log what looks like a secret, and the values of arguments."""

    def __init__(self) -> None:
        self._replaced: Mapping[str, str] = {}

    def hide(self, arguments: Sequence[str]) -> None:
        """Leaves out the values of a command's arguments, wherever they are logged as given."""
        found = secrets.replacements(arguments)
        escaped = {json.dumps(text)[1:-1]: shown for text, shown in found.items()}
        self._replaced = dict(sorted({**found, **escaped}.items(), key=lambda pair: -len(pair[0])))

    def left(self, text: str) -> str:
        """Text without secrets."""
        for given, shown in self._replaced.items():
            text = text.replace(given, shown)
        return secrets.redact(text)


class _Formatter(logging.Formatter):
    """Formats as another formatter, without secrets."""

    def __init__(self, formatter: logging.Formatter, redaction: Redaction) -> None:
        super().__init__()
        self._formatter, self._redaction = formatter, redaction

    def format(self, record: logging.LogRecord) -> str:
        """One record, with its traceback."""
        return self._redaction.left(self._formatter.format(record))


def install(arguments: Sequence[str] = ()) -> Redaction:
    """Puts a redaction into all handlers that the root logger has.

    Args:
        arguments: for Beam, whose values are left out.
    """
    redaction = Redaction()
    redaction.hide(arguments)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Formatter(handler.formatter or logging.Formatter(), redaction))
    return redaction


def print_traceback(redaction: Redaction) -> None:
    """Writes the traceback of the exception that is handled, without secrets."""
    sys.stderr.write(redaction.left(traceback.format_exc()))
    sys.stderr.flush()
