"""Names that TensorFlow and Keras accept, for names that people choose freely, such as a column's.

TensorFlow restricts the names of scopes, ops, arguments and vocabulary files, and Keras those of
inputs and layers. A name of this module fits all of them. People never see it where they can use
their own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z]\w{0,119}", re.ASCII)
"""Short enough for a file's name, with what Transform puts before and behind it."""

_KEPT = 60
"""Characters of a longer name, for people who read a graph."""


def safe(name: str) -> str:
    """The name itself if it fits; otherwise a like name with a digest.

    A name that fits has at most 120 ASCII letters, digits and ``_``, and begins with a letter.
    """
    return name if _PLAIN.fullmatch(name) else _digested(name)


def distinct(names: Iterable[str]) -> dict[str, str]:
    """Each name, and a safe one; safe names differ by more than case, as names of ops must."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        made = safe(name)
        if made.lower() in taken:
            made = _digested(name)
        taken.add(made.lower())
        found[name] = made
    return found


def _digested(name: str) -> str:
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    kept = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:_KEPT]
    return f"{kept}_{digest}" if kept[:1].isalpha() else f"name_{kept}_{digest}"
