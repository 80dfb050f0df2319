"""Checks that a schema, transform graph or file has the required features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stagecraft.common.errors import UserError


class MissingFeatureError(UserError):
    """A schema, a transform graph or a file lacks features."""

    def __init__(self, where: str, missing: Sequence[str], present: Sequence[str], advice: str):
        names = " and ".join(map(repr, missing))
        plural = "s" if len(missing) > 1 else ""
        known = f"only {', '.join(present)}" if present else "no features"
        super().__init__(
            f"{where}: no feature{plural} {names} (it has {known}); {advice}",
            file=where,
            record=", ".join(missing),
            suggestion=advice,
        )
        self.missing = tuple(missing)
        self.present = tuple(present)


def check(where: str, present: Iterable[str], required: Sequence[str], advice: str) -> None:
    """Refuses features of which a required one is missing."""
    names = sorted(present)
    if missing := [name for name in required if name not in names]:
        raise MissingFeatureError(where, missing, names, advice)
