"""A lease in a folder of a volume that several machines may mount.

The file with the highest number in ``.lease/`` is the lease. A write creates the next number: it
links a temporary file to that name. link(2) fails if the name exists, and is atomic on NFS, too.
On a volume without hard links (Azure Files over SMB, some FUSE file systems), ``O_EXCL`` creates
the file. The two highest numbers stay: a process that stalled, and creates a number that was
removed meanwhile, still sees a higher one.
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
"""Number of files kept; the highest is the lease."""

_PART = ".part"

_PAUSE_SECONDS = 0.01

_STALE_SECONDS = 3600.0
"""Age of a temporary file whose process was killed."""


class VolumeLease(Lease):
    """A :class:`Lease` on a disk; its methods raise OSError on errors of the disk."""

    def __init__(self, root: pathlib.Path, *, name: str = "", seconds: float, grace: float):
        super().__init__(str(root), name=name, seconds=seconds, grace=grace)
        self._folder = root / FOLDER

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`. A file that cannot be parsed is incomplete, and holds for a term."""
        while numbers := self._numbers():
            path = self._path(numbers[-1])
            try:
                content, written = path.read_bytes(), path.stat().st_mtime
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                # A higher number exists by now; NFS may list the old one for some seconds.
                time.sleep(_PAUSE_SECONDS)
                continue
            try:
                return Record.parsed(content), str(numbers[-1])
            except ValueError:
                # Another process has created the file (O_EXCL), and may not have written it yet.
                until = written + self.seconds + self.grace
                return Record(holder=Holder(), until=until), str(numbers[-1])
        return None, None

    def write(self, record: Record, version: str | None) -> str:
        """See :class:`Lease`."""
        number = int(version or 0) + 1
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make(number, record.json())
        numbers = self._numbers()
        if max(numbers, default=0) > number:  # this process stalled: the number is outdated
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
                # NFS may report this for a request that was sent twice (open(2), O_EXCL).
                if part.stat().st_nlink != 2:
                    raise Conflict from None
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                try:
                    with self._path(number).open("xb") as file:
                        file.write(content)
                except FileExistsError:
                    raise Conflict from None
        finally:
            part.unlink(missing_ok=True)

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
