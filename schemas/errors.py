"""Errors that are shown to people as they are, without a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.schemas.plain_text import visible


class UserError(Exception):
    """Something outside this program is wrong, and the user can mend it.

    The message is one paragraph: what is wrong, why, and what works. The fields say the same to
    programs; tests assert the fields.
    """

    def __init__(
        self,
        message: str,
        *,
        setting: str = "",
        value: object = None,
        suggestion: str = "",
        file: str = "",
        record: str = "",
    ):
        """Makes the error.

        Args:
            setting: dotted name of the setting, or the command's option, such as
                ``parallel.stages`` or ``--data``.
            suggestion: what works, such as ``parallel.strategy: grid``.
            file: path or address of the file.
            record: the part of the file: a line, a column, a feature, a member of an archive.
        """
        super().__init__(visible(message, lines=True))
        self.setting = setting
        self.value = value
        self.suggestion = suggestion
        self.file = file
        self.record = record


class TransientError(UserError):
    """A failure that may pass: a server that does not answer. Trying again may help."""


class SettingError(UserError, ValueError):
    """A setting whose value cannot be used. pydantic collects it, as any ValueError."""

    def __init__(
        self, setting: str, value: object, problem: str, use: str = "", *, shown: str = ""
    ):
        """Makes the message ``SETTING: VALUE PROBLEM; use USE``.

        Args:
            setting: its full name, such as ``parallel.stages``.
            problem: what is wrong with it, a phrase with a verb.
            use: a value that works, such as ``parallel.strategy: grid``.
            shown: the value in the message, if not ``value`` itself.
        """
        advice = f"; use {use}" if use else ""
        super().__init__(
            f"{setting}: {visible(shown or str(value))} {problem}{advice}",
            setting=setting,
            value=value,
            suggestion=use,
        )


def setting_error(problem: Mapping[str, Any]) -> SettingError | None:
    """The SettingError behind one of pydantic's errors, if any. It names its setting in full."""
    cause = problem.get("ctx", {}).get("error")
    return cause if isinstance(cause, SettingError) else None
