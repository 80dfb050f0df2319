"""Mappings and lists in a setting, held as text: ML Metadata has no other property for them.

YAML gives the mapping or the list itself; flat settings hold its JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stagecraft.schemas.errors import SettingError

_DOTTED = r"\w+(\.\w+)*:\w+"


def loaded(text: str | None, default: Any) -> Any:
    """The mapping or the list of a setting; ``default`` if it is not set."""
    return json.loads(text) if text else default


def mapping(setting: str, value: Any) -> str | None:
    """A mapping, or the JSON of one, as JSON; None if it is empty. The order is kept."""
    if value is None or value == "":
        return None
    parsed = _parsed(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping) or not all(isinstance(key, str) for key in parsed):
        raise SettingError(setting, value, "is not a mapping", "names and values: {NAME: VALUE}")
    return _dumped(setting, dict(parsed)) if parsed else None


def patterns(setting: str, value: Any) -> str | None:
    """A list of regular expressions, its JSON, or one expression, as JSON; None if empty."""
    parsed = _parsed(value) if isinstance(value, str) else value
    parsed = (
        [value] if isinstance(value, str) and value and not isinstance(parsed, list) else parsed
    )
    if not parsed:
        return None
    if not isinstance(parsed, (list, tuple)) or not all(isinstance(each, str) for each in parsed):
        raise SettingError(setting, value, "is not a list of regular expressions", "[head/, bias$]")
    for each in parsed:
        _check_pattern(setting, each)
    return _dumped(setting, list(parsed))


def check_factors(setting: str, factors: Mapping[str, Any]) -> None:
    """Checks that a mapping is from regular expressions to numbers of 0 or more."""
    for pattern, factor in factors.items():
        _check_pattern(setting, pattern)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor >= 0:
            raise SettingError(
                setting, factor, f"is no factor for {pattern!r}", "a number of 0 or more"
            )


def check_shares(setting: str, shares: Mapping[str, Any]) -> None:
    """Checks that a mapping is from regular expressions to numbers between 0 and 1."""
    for pattern, share in shares.items():
        _check_pattern(setting, pattern)
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
            raise SettingError(
                setting,
                share,
                f"is no share of all steps for {pattern!r}",
                "a number between 0 and 1, such as 0.3",
            )


def dotted_names(setting: str, value: Any) -> str | None:
    """Names of the form ``package.module:name``, a list or separated by commas, as the latter."""
    if not value:
        return None
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise SettingError(setting, value, "is not a list of names", "[package.module:Class]")
    stripped = [str(name).strip() for name in names]
    for name in stripped:
        if not re.fullmatch(_DOTTED, name):
            raise SettingError(
                setting, name, "does not have the form package.module:Class", "mine.logs:Printer"
            )
    return ",".join(stripped)


def _check_pattern(setting: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SettingError(
            setting, pattern, f"is not a regular expression: {error}", re.escape(pattern)
        ) from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _dumped(setting: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        raise SettingError(setting, value, "has a number that is not finite") from None
    except TypeError as error:
        raise SettingError(setting, value, f"has a value that JSON cannot hold: {error}") from None


def primitive(value: Any) -> Any:
    """A setting's value as ML Metadata stores it."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return int(value) if isinstance(value, bool) else value
