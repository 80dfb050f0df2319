"""A log without secrets: TFX and Beam log arguments, addresses and execution properties."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence

from stagecraft.common import secrets


class Redaction:
    """Removes likely secrets, and the values of arguments, from a log."""

    def __init__(self) -> None:
        self._replaced: Mapping[str, str] = {}

    def hide(self, arguments: Sequence[str]) -> None:
        """From now on, removes the values of a command's arguments."""
        plain = secrets.replacements(arguments)
        escaped = {json.dumps(text)[1:-1]: shown for text, shown in plain.items()}
        self._replaced = dict(sorted({**plain, **escaped}.items(), key=lambda pair: -len(pair[0])))

    def redact(self, text: str) -> str:
        """Text without secrets."""
        for value, shown in self._replaced.items():
            text = text.replace(value, shown)
        return secrets.redact(text)


class _Formatter(logging.Formatter):
    """Formats as another formatter, without secrets."""

    def __init__(self, formatter: logging.Formatter, redaction: Redaction) -> None:
        super().__init__()
        self._formatter, self._redaction = formatter, redaction

    def format(self, record: logging.LogRecord) -> str:
        """One record, with its traceback."""
        return self._redaction.redact(self._formatter.format(record))


def install(arguments: Sequence[str] = ()) -> Redaction:
    """Redacts the output of all handlers of the root logger, and hides Beam's arguments."""
    redaction = Redaction()
    redaction.hide(arguments)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Formatter(handler.formatter or logging.Formatter(), redaction))
    return redaction


def print_traceback(redaction: Redaction) -> None:
    """Writes the traceback of the current exception to stderr, without secrets."""
    sys.stderr.write(redaction.redact(traceback.format_exc()))
    sys.stderr.flush()
