"""Reads a .gz that may be made to expand without end."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from typing import IO, TypeVar

from stagecraft.schemas.errors import UserError

FREE = 1 << 30
"""Bytes that any archive may expand to."""

RATIO = 100
"""How many times its size a larger one may expand to. DEFLATE reaches 1,032
(https://www.zlib.net/zlib_tech.html); pictures hardly shrink."""

HEADER = 1 << 17
"""Bytes: the most that is read to find the next member. Most headers have 512, a long name some
more; tarfile holds them in memory, and calls itself once for each extension."""

_T = TypeVar("_T")


class Expanding(gzip.GzipFile):
    """A :class:`gzip.GzipFile` for reading that stops where no archive of pictures goes on.

    Nothing beyond the limit is expanded, also where a reader only skips it.
    """

    def __init__(self, raw: IO[bytes], name: str, compressed: int) -> None:
        """Wraps an open file.

        Args:
          raw: the file.
          name: what to call it in errors.
          compressed: its bytes.
        """
        super().__init__(fileobj=raw, mode="rb")
        self._source, self._limit = name, FREE + RATIO * compressed
        self._header_left: int | None = HEADER  # None: what is read is no header

    def header(self, read: Callable[[], _T]) -> _T:
        """Calls ``read``, which may read HEADER bytes."""
        self._header_left = HEADER
        try:
            return read()
        finally:
            self._header_left = None

    def read(self, size: int | None = -1) -> bytes:
        """As :meth:`gzip.GzipFile.read`.

        Raises:
          UserError: it expands beyond all measure.
        """
        self._check_limit(self.tell() + max(size or 0, 0))
        if self._header_left is not None and size is not None:
            self._header_left -= size
            if self._header_left < 0:
                raise self._refused(f"has a member whose header is longer than {HEADER:,} bytes")
        return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As :meth:`gzip.GzipFile.seek`, which expands what it skips; forwards only.

        Raises:
          UserError: it expands beyond all measure.
        """
        if whence == os.SEEK_SET:
            self._check_limit(offset)
            if offset < self.tell():  # tarfile would read the same member for ever (CVE-2025-8194)
                raise self._refused("has a member of a negative size")
        return super().seek(offset, whence)

    def _check_limit(self, position: int) -> None:
        if position > self._limit:
            raise self._refused(
                f"expands to more than {self._limit:,} bytes, which pictures compressed to this "
                "size do not"
            )

    def _refused(self, what: str) -> UserError:
        return UserError(
            f"{self._source}: {what}. The file is damaged, or made to fill memory or never to end; "
            "get the archive again from a source you trust."
        )
