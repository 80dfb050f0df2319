"""The pipeline root of the run in this process, for jobs that check it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_root = ""


def current() -> str:
    """The pipeline root; empty outside :func:`rooted`."""
    return _root


@contextlib.contextmanager
def rooted(root: str) -> Iterator[None]:
    """Makes the first job of the block check the pipeline root."""
    global _root
    before, _root = _root, root
    try:
        yield
    finally:
        _root = before
