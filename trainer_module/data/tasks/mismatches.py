"""Settings that do not fit the data, found before Transform. Imports no TensorFlow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import visible

NUMBERS = ("INT", "FLOAT")

_NONE: Mapping[str, Any] = MappingProxyType({})


class Observed(NamedTuple):
    """A raw feature, as a schema and perhaps statistics describe it."""

    kind: str
    """Type in the schema: ``INT``, ``FLOAT``, ``BYTES`` or another one."""

    in_each: bool = True
    """Whether the schema requires a value in each example."""

    listed: Sequence[str] | None = None
    """All values that the schema allows; None: it does not list them."""

    missing: Mapping[str, tuple[int, int]] = _NONE
    """Split -> examples without a value, and all examples; by statistics."""

    values: Mapping[str, Mapping[str, int]] = _NONE
    """Split -> its values, and how many examples have each; by statistics that count each value."""

    unique: Mapping[str, int] = _NONE
    """Split -> number of its values; by statistics of texts, and of numbers that are names."""

    texts: Sequence[str] = ()
    """Some texts, if there are any."""

    most: int = 1
    """Values that an example has at most; by statistics."""


class Mismatch(NamedTuple):
    """A setting that does not fit the data."""

    setting: str
    value: object
    feature: str
    problem: str
    use: str

    def __str__(self) -> str:
        return f"{self.setting}: {visible(str(self.value))} {self.problem}; use {self.use}"


class MismatchError(SettingError):
    """Settings do not fit the data; the fields are those of the first mismatch."""

    def __init__(self, mismatches: Sequence[Mismatch], file: str = ""):
        """``file``: the schema, or the data."""
        first, several = mismatches[0], len(mismatches) > 1
        listed = " ".join(
            f"({number}) {each}." if several else str(each)
            for number, each in enumerate(mismatches, start=1)
        )
        where = f"{file}: " if file else ""
        head = f"{len(mismatches)} settings do not fit the data: " if several else ""
        UserError.__init__(
            self,
            f"{where}{head}{listed}",
            setting=first.setting,
            value=first.value,
            suggestion=first.use,
            file=file,
            record=first.feature,
        )
        self.mismatches = tuple(mismatches)


def of_schema(schema: Any) -> dict[str, Observed]:
    """The features of a TFDV schema, by name."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    domains = {each.name: each for each in schema.string_domain}
    found = {}
    for feature in schema.feature:
        domain = domains.get(feature.domain) if feature.domain else None
        if feature.HasField("string_domain"):
            domain = feature.string_domain
        is_open = feature.distribution_constraints.min_domain_mass < 1
        found[feature.name] = Observed(
            kind=schema_pb2.FeatureType.Name(feature.type),
            in_each=feature.presence.min_fraction >= 1 and feature.HasField("shape"),
            listed=None if domain is None or is_open else tuple(domain.value),
        )
    return found


def missing(
    setting: str, value: object, feature: str, known: Iterable[str], where: str = "the data"
) -> Mismatch:
    """The mismatch of a name that no feature has."""
    names = sorted(known)
    folded = {each.strip().casefold(): each for each in names}
    near = difflib.get_close_matches(feature.strip().casefold(), folded, n=1)
    use = repr(folded[near[0]]) if near else f"one of {', '.join(names) or 'its features'}"
    return Mismatch(setting, value, feature, f"names no column of {where}", use)


def is_number(text: str) -> bool:
    """Whether a text is a number in Python."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def decimal_point(text: str) -> str:
    """A number with a decimal comma as one with a point; empty for other texts."""
    fixed = text.strip().replace(".", "").replace(",", ".")
    return fixed if text.count(",") == 1 and is_number(fixed) else ""
