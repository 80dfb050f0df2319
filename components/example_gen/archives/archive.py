"""Reads a CIFAR data set from a .tar.gz or a folder, in any of the four official layouts."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import IO, NamedTuple, TypeVar

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.archives import files, records
from stagecraft.components.example_gen.archives.layouts import (
    LAYOUTS,
    TEST,
    TRAIN,
    Layout,
    Place,
    place,
)

_LONGEST_NAME = 255  # bytes: NAME_MAX of Linux
_SHOWN = 10  # names of files in a message
_GZIP = b"\x1f\x8b"  # first bytes of a gzip file: RFC 1952, 2.3.1

FREE = 1 << 30  # bytes that an archive of any size may expand to
RATIO = 100
"""Most expansion of larger archives. DEFLATE reaches 1,032
(https://www.zlib.net/zlib_tech.html); images hardly compress."""

HEADER = 1 << 17
"""Most bytes of a member's header. Most headers have 512, and more with a long name. tarfile keeps
them in memory and recurses once per extension."""

_T = TypeVar("_T")


class Block(NamedTuple):
    """Some consecutive records of one file."""

    part: str  # ``train`` or ``test``, a part of the data set
    batch: int  # the file's position among those of its part, from 0
    labels: records.Labels
    planes: records.Planes


class _File(NamedTuple):
    name: str
    size: int
    stream: IO[bytes]
    done: Callable[[], int]  # bytes of the source read so far
    total: int


def read(
    source: str, dataset: str, progress: Callable[[int, int], None] = lambda done, total: None
) -> Iterator[Block]:
    """Yields every record of a data set, checked; memory does not grow with the data.

    Files have the archive's order; ``(part, batch)`` gives the data set's own order. In the pickled
    layouts, one file at a time is in memory.

    Args:
      source: path of a ``.tar.gz`` or of a folder.
      dataset: key of ``features.DATASETS``.
      progress: called with the bytes done and the total bytes.

    Raises:
      UserError: the source is damaged, unsafe, incomplete or another data set. The error names the
        file and, if known, the record.
    """
    walk = _walk_folder(source) if files.is_folder(source) else _walk_tar(source)
    places: dict[Place, str] = {}
    name = ""
    try:
        with contextlib.closing(walk):
            for name, size, stream, done, total in walk:
                spot = place(posixpath.basename(name))
                if spot is None:
                    continue
                where = f"{source}: {name}"
                _check_place(spot, places, dataset, where)
                places[spot] = name
                for labels, planes in records.read(stream, size, spot.layout, dataset, where):
                    yield Block(spot.part, spot.batch, labels, planes)
                    progress(done(), total)
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        raise _unreadable(source, name, error) from None
    _check_complete(source, places)


def check_kind(source: str) -> None:
    """Refuses a source that cannot be a data set, without reading a record."""
    files.check_regular(source)
    try:
        if os.path.isdir(source):
            if not batch_files(source)[1]:
                _check_complete(source, {})
        else:
            with open(source, "rb") as file:
                if file.read(2) != _GZIP:
                    raise gzip.BadGzipFile("not a gzipped file")
    except OSError as error:
        raise _unreadable(source, "", error) from None


def _walk_tar(source: str) -> Generator[_File, None, None]:
    total = files.size(source)
    with (
        files.open_binary(source) as raw,
        Expanding(raw, source, total) as data,
        tarfile.open(fileobj=data, mode="r:") as tar,
    ):
        headers = iter(tar)
        while (member := data.header(lambda: next(headers, None))) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # saves memory
            _check_member(source, member)
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield _File(member.name, member.size, stream, raw.tell, total)
        # tarfile accepts any end, and gzip compares checksums only at the very end.
        rest = data.read(1 << 20)
        if not rest or rest.strip(b"\0"):
            raise EOFError("no end marker after the last file")
        while data.read(1 << 20):
            pass


class Expanding(gzip.GzipFile):
    """A :class:`gzip.GzipFile` for reading that expands no data beyond a limit, even in a seek.

    The file may be a decompression bomb.
    """

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


def _check_member(source: str, member: tarfile.TarInfo) -> None:
    name, parts, problem = member.name, member.name.split("/"), ""
    if name.startswith("/") or ".." in parts:
        problem = "would be unpacked outside its folder"
    elif any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in parts):
        name, problem = name[:40], f"has a name of more than {_LONGEST_NAME} bytes"
    elif member.issparse():
        problem = "is a sparse file, and CIFAR archives contain only plain files"
    elif not (member.isfile() or member.isdir()):
        kind = "a link" if member.issym() or member.islnk() else "a device or a pipe"
        problem = f"is {kind}, and CIFAR archives contain only plain files"
    if problem:
        raise UserError(
            f"{source}: member {name!r} {problem}. Do not unpack this archive; download it from a "
            "trusted source.",
            file=source,
            record=name,
        )


def _walk_folder(source: str) -> Generator[_File, None, None]:
    folder, names = batch_files(source)
    sizes = [files.size(posixpath.join(folder, name)) for name in names]
    for index, name in enumerate(names):
        with files.open_binary(posixpath.join(folder, name)) as stream:

            def done(before: int = sum(sizes[:index]), stream: IO[bytes] = stream) -> int:
                return before + stream.tell()

            yield _File(name, sizes[index], stream, done, sum(sizes))


def batch_files(source: str) -> tuple[str, list[str]]:
    """The folder of the batches, which is the source or in it, and their sorted names."""
    names = files.names(source)
    batches = [
        name for name in names if place(name) and not files.is_folder(posixpath.join(source, name))
    ]
    inner = [layout.folder for layout in LAYOUTS if layout.folder in names]
    if not batches and len(inner) == 1 and files.is_folder(posixpath.join(source, inner[0])):
        return batch_files(posixpath.join(source, inner[0]))
    return source, batches


def _check_place(spot: Place, places: dict[Place, str], dataset: str, where: str) -> None:
    layout: Layout = spot.layout
    others = [other.layout.name for other in places if other.layout != layout]
    if others:
        raise UserError(
            f"{where}: belongs to {layout.name}, but an earlier file belongs to {others[0]}. Use "
            "an archive or a folder with a single layout.",
            file=where,
        )
    if dataset not in layout.datasets:
        raise UserError(
            f"{where}: is {layout.family} ({layout.name}), but the dataset is {dataset}. Use an "
            f"archive of {dataset}, or set the dataset to {layout.datasets[-1]}.",
            setting="dataset",
            value=dataset,
            suggestion=layout.datasets[-1],
            file=where,
        )
    if spot in places:
        raise UserError(
            f"{where}: is the same batch as {places[spot]}; keep one of them.", file=where
        )


def _check_complete(source: str, places: dict[Place, str]) -> None:
    if not places:
        names = files.names(source) if files.is_folder(source) else []
        archives = [name for name in names if name.endswith(".tar.gz")]
        advice = (
            f"Use the archive itself, such as {posixpath.join(source, archives[0])}."
            if archives
            else "Expected data_batch_1.bin … and test_batch.bin, or the files of another layout: "
            f"{', '.join(layout.name for layout in LAYOUTS)}. For your own images, use a folder "
            "with a subfolder for each class, such as photos/cat/1.png."
        )
        raise UserError(f"{source}: has no CIFAR batch. {advice}", file=source)
    batches = {spot.batch for spot in places if spot.part == TRAIN}
    # Numbers come from file names and may be huge, so count up to the first gap only.
    gap = next(number for number in itertools.count() if number not in batches)
    lacks = ""
    if not batches:
        lacks = "training batch"
    elif gap < max(batches):
        lacks = f"training batch {gap + 1}"
    elif TEST not in {spot.part for spot in places}:
        lacks = "test batch"
    if lacks:
        names = sorted(places.values())
        present = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
        raise UserError(
            f"{source}: has no {lacks}, only {present}. Batches are numbered from 1 without gaps. "
            "Rename the files, or download the archive again.",
            file=source,
            record=lacks,
        )


def _unreadable(source: str, name: str, error: Exception) -> UserError:
    where = f"{source} (at {name})" if name else source
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{where}: cannot be read: {error.strerror}.", file=source)
    if isinstance(error, EOFError) or "end of data" in str(error):
        why = f"is truncated ({error})"
    else:
        why = f"is damaged or not a .tar.gz ({error})"
    return UserError(f"{where}: {why}. Download the archive again.", file=source)
