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

HEADER = 1 << 20
"""Bytes: the longest header of a member that is read. Those of real archives have 512 or 1,024."""

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
        self._source, self._limit, self._at_once = name, FREE + RATIO * compressed, HEADER

    def header(self, read: Callable[[], _T]) -> _T:
        """Calls ``read``; the file may not be longer than HEADER what that reads at once."""
        self._at_once = HEADER
        try:
            return read()
        finally:
            self._at_once = self._limit

    def read(self, size: int | None = -1) -> bytes:
        """As :meth:`gzip.GzipFile.read`.

        Raises:
          UserError: it expands beyond all measure.
        """
        if size is not None and size > self._at_once:
            raise UserError(
                f"{self._source}: a member's header has {size:,} bytes; headers have 512. The file "
                "is damaged, or made to fill memory; get the archive again."
            )
        self._check_limit(self.tell() + max(size or 0, 0))
        return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As :meth:`gzip.GzipFile.seek`, which expands what it skips.

        Raises:
          UserError: it expands beyond all measure.
        """
        if whence == os.SEEK_SET:
            self._check_limit(offset)
        return super().seek(offset, whence)

    def _check_limit(self, position: int) -> None:
        if position > self._limit:
            raise UserError(
                f"{self._source}: expands to more than {self._limit:,} bytes, which pictures "
                "compressed to this size do not. The file is damaged, or made to fill memory; get "
                "the archive again."
            )
