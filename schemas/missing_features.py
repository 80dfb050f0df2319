"""The refusal of what lacks a feature that is needed, by its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stagecraft.schemas.errors import UserError


class MissingFeatureError(UserError):
    """A schema, a transform graph or a file lacks features."""

    def __init__(self, where: str, missing: Sequence[str], there: Sequence[str], advice: str):
        """What is told.

        Args:
            where: a path, or a path and what it is of.
            missing: names of features.
            there: names of those that it has.
            advice: what to do.
        """
        names = " and ".join(map(repr, missing))
        plural = "s" if len(missing) > 1 else ""
        known = ", ".join(there) or "none"
        super().__init__(f"{where}: no feature{plural} {names} (features: {known}); {advice}")
        self.missing = tuple(missing)
        self.there = tuple(there)


def check(where: str, there: Iterable[str], needed: Sequence[str], advice: str) -> None:
    """Refuses what lacks a feature.

    Args:
        where: as of :class:`MissingFeatureError`.
        there: names of the features that it has.
        needed: names of those that it has to have.
        advice: what to do.

    Raises:
        MissingFeatureError: one of them is missing, or several.
    """
    found = sorted(there)
    missing = [name for name in needed if name not in found]
    if missing:
        raise MissingFeatureError(where, missing, found, advice)
