"""Reads a .gz that may be a decompression bomb."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from typing import IO, TypeVar

from stagecraft.common.errors import UserError

FREE = 1 << 30  # bytes that an archive of any size may expand to
RATIO = 100
"""Most expansion of larger archives. DEFLATE reaches 1,032
(https://www.zlib.net/zlib_tech.html); images hardly compress."""

HEADER = 1 << 17
"""Most bytes of a member's header. Most headers have 512, and more with a long name. tarfile keeps
them in memory and recurses once per extension."""

_T = TypeVar("_T")


class Expanding(gzip.GzipFile):
    """A :class:`gzip.GzipFile` for reading that expands no data beyond a limit, even in a seek."""

    def __init__(self, raw: IO[bytes], name: str, compressed: int) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._source, self._limit = name, FREE + RATIO * compressed
        self._header_left: int | None = HEADER  # None: not reading a header

    def header(self, read: Callable[[], _T]) -> _T:
        """Calls ``read``, which may read at most HEADER bytes."""
        self._header_left = HEADER
        try:
            return read()
        finally:
            self._header_left = None

    def read(self, size: int | None = -1) -> bytes:
        """Reads as :meth:`gzip.GzipFile.read` does."""
        self._check_limit(self.tell() + max(size or 0, 0))
        if self._header_left is not None and size is not None:
            self._header_left -= size
            if self._header_left < 0:
                raise self._refused(f"has a member whose header is longer than {HEADER:,} bytes")
        return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seeks as :meth:`gzip.GzipFile.seek` does, which expands skipped bytes; forward only."""
        if whence == os.SEEK_SET:
            self._check_limit(offset)
            if offset < self.tell():  # tarfile would loop forever (CVE-2025-8194)
                raise self._refused("has a member of a negative size")
        return super().seek(offset, whence)

    def _check_limit(self, position: int) -> None:
        if position > self._limit:
            raise self._refused(
                f"expands to more than {self._limit:,} bytes, too many for images of this "
                "compressed size"
            )

    def _refused(self, problem: str) -> UserError:
        return UserError(
            f"{self._source}: {problem}. The file is damaged or malicious; download the archive "
            "from a trusted source.",
            file=self._source,
        )
