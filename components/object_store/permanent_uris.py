"""Permanent URIs of artifacts, for executors that get local copies.

On Kubeflow, the launcher downloads inputs, and executors see the folders of the copies.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from types import MappingProxyType

_uris: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "permanent_uris", default=MappingProxyType({})
)


@contextlib.contextmanager
def copied(uris: Mapping[str, str]) -> Iterator[None]:
    """Sets the permanent URIs, by the folder of the copy, during the block."""
    token = _uris.set(uris)
    try:
        yield
    finally:
        _uris.reset(token)


def permanent_uri(folder: str) -> str:
    """The permanent URI of a copy; the folder itself if it is no copy."""
    return _uris.get().get(folder, folder)
