"""The error of a model that this project cannot train as Keras trains it."""

from __future__ import annotations

from stagecraft.schemas.errors import UserError


class ModelRefusedError(UserError):
    """A part of ``train.model`` does what the engines cannot do as Keras does it."""

    def __init__(self, part: str, reason: str, advice: str):
        """Makes the message: part, reason, advice.

        Args:
            part: the layer, variable or method, by name.
            reason: what it does, and why that cannot be.
            advice: what works.
        """
        super().__init__(f"train.model: {part} {reason}; {advice}")
        self.part = part
        self.reason = reason
        self.advice = advice
