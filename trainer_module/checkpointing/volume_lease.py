"""A lease in a folder of a volume that several machines may mount.

The file with the highest number in ``.lease/`` is the lease. A write makes the next number: it
links a file of its own to that name. link(2) fails where the name is taken, and is atomic on NFS,
too. On a volume without hard links (Azure Files over SMB, some FUSE file systems), ``O_EXCL``
creates the file. The two highest numbers stay. So a process that stalled, and makes a number that
was removed meanwhile, still finds a higher one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import time
import uuid

from stagecraft.trainer_module.checkpointing.lease import Conflict, Lease
from stagecraft.trainer_module.checkpointing.lease_record import Holder, Record

FOLDER = ".lease"

_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)

_KEPT = 2
"""Numbers; the highest is the lease."""

_PART = ".part"

_PAUSE_SECONDS = 0.01

_STALE_SECONDS = 3600.0
"""After which a part is one of a process that was killed."""


class VolumeLease(Lease):
    """A :class:`Lease` on a disk. Raises OSError where the disk cannot be read or written."""

    def __init__(self, root: pathlib.Path, *, name: str = "", seconds: float, grace: float):
        """Asks nothing yet; ``root`` is made when it is written."""
        super().__init__(str(root), name=name, seconds=seconds, grace=grace)
        self._folder = root / FOLDER

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`; what cannot be read was begun, and is held for a term."""
        while numbers := self._numbers():
            path = self._path(numbers[-1])
            try:
                content, written = path.read_bytes(), path.stat().st_mtime
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                # A higher one is there by now; NFS may list the old one for some seconds.
                time.sleep(_PAUSE_SECONDS)
                continue
            try:
                return Record.parsed(content), str(numbers[-1])
            except ValueError:
                # Made by O_EXCL, and its content is still to come. Or it never will.
                until = written + self.seconds + self.grace
                return Record(holder=Holder(), until=until), str(numbers[-1])
        return None, None

    def write(self, record: Record, version: str | None) -> str:
        """See :class:`Lease`."""
        number = int(version or 0) + 1
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make(number, record.json())
        numbers = self._numbers()
        if max(numbers, default=0) > number:  # this process has stalled, and made one that was gone
            self._path(number).unlink(missing_ok=True)
            raise Conflict
        self._clean(numbers[:-_KEPT])
        return str(number)

    def _make(self, number: int, content: bytes) -> None:
        part = self._folder / f"{uuid.uuid4().hex}{_PART}"
        try:
            part.write_bytes(content)
            try:
                os.link(part, self._path(number))
            except FileExistsError:
                # NFS may say so of a request that was sent twice, and done (open(2), O_EXCL).
                if part.stat().st_nlink != 2:
                    raise Conflict from None
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._make_exclusively(number, content)
        finally:
            part.unlink(missing_ok=True)

    def _make_exclusively(self, number: int, content: bytes) -> None:
        try:
            with self._path(number).open("xb") as file:
                file.write(content)
        except FileExistsError:
            raise Conflict from None

    def _clean(self, numbers: list[int]) -> None:
        with contextlib.suppress(OSError):
            for number in numbers:
                self._path(number).unlink(missing_ok=True)
            for part in self._folder.glob(f"*{_PART}"):
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._folder) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _path(self, number: int) -> pathlib.Path:
        return self._folder / f"{number:08d}"
