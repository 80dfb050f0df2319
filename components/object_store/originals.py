"""Where artifacts are kept for good, for executors that are given copies of them.

On Kubeflow, the launcher copies inputs down, and executors see the copies' folders.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from types import MappingProxyType

_known: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "originals", default=MappingProxyType({})
)


@contextlib.contextmanager
def known(addresses: Mapping[str, str]) -> Iterator[None]:
    """In the block, :func:`original` knows them.

    Args:
        addresses: by the folder of the copy.
    """
    token = _known.set(addresses)
    try:
        yield
    finally:
        _known.reset(token)


def original(folder: str) -> str:
    """The address of what is in a folder; the folder itself, where it is no copy."""
    return _known.get().get(folder, folder)
