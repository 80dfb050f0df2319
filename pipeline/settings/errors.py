"""The error of settings that cannot be."""

from __future__ import annotations

from stagecraft.schemas.errors import UserError


class SettingsError(UserError):
    """Settings that cannot be; the message names the field, the value and what would work."""
