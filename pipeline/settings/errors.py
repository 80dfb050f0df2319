"""The error of wrong settings."""

from __future__ import annotations

from stagecraft.schemas.errors import UserError


class SettingsError(UserError):
    """Wrong settings; the message names the setting, its value and what works."""
