"""The error for a model that this project cannot train as Keras does."""

from __future__ import annotations

from stagecraft.schemas.errors import UserError


class ModelRefusedError(UserError):
    """A part of ``train.model`` that the engines cannot run as Keras does, and why."""

    def __init__(self, part: str, reason: str, advice: str):
        super().__init__(
            f"train.model: {part} {reason}; {advice}",
            setting="train.model",
            value=part,
            suggestion=advice,
        )
        self.part = part
        self.reason = reason
        self.advice = advice
