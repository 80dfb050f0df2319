"""Kubernetes quantities: ``500m``, ``1.5Gi``, ``2e3``."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {suffix: 2 ** (10 * power) for power, suffix in enumerate("KMGTPE", start=1)}


def parse(text: str) -> Decimal | None:
    """The amount, as ParseQuantity of k8s.io/apimachinery; None: Kubernetes cannot parse it."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, suffix = Decimal(found["number"]), found["suffix"] or ""
    if suffix.endswith("i"):
        return number * _BINARY[suffix[0]]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number
