"""Opens ML Metadata's SQLite file, or explains why it cannot be opened.

ML Metadata itself reports "There are a subset of tables in MLMD instance" for any file that it
cannot read. The file format is https://www.sqlite.org/fileformat.html.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import sqlite3
from collections.abc import Iterator
from typing import Literal

import ml_metadata
from ml_metadata.proto import metadata_store_pb2

from stagecraft.common.errors import UserError

Problem = Literal[
    "unreadable", "not SQLite", "truncated", "damaged", "locked", "another schema", "not MLMD"
]

_MAGIC = b"SQLite format 3\0"
_PATIENCE_SECONDS = 5.0  # how long to wait for a lock. A run holds it for milliseconds at a time.
_TRIES = 5
"""Of a reader; each takes less than a millisecond."""
_VERSIONS = re.compile(r"database version (\d+) is (?:greater|older) than library version (\d+)")

_AWAY = "move it and the folder pipeline_root away to start a new history"


class MetadataFileError(UserError):
    """A file that ML Metadata cannot work with."""

    def __init__(self, path: str, problem: Problem, why: str, remedy: str):
        super().__init__(f"{path}: {why}; {remedy}", file=path, suggestion=remedy)
        self.problem = problem


def check(path: str | os.PathLike[str], *, write: bool = False) -> None:
    """Refuses a file that ML Metadata cannot work with.

    Args:
        path: of the file. A missing or empty file passes, because ML Metadata creates it.
        write: whether the caller will write. Then a lock against writers is refused, too.
    """
    path = os.fspath(path)
    try:
        if not os.path.getsize(path):
            return
        header = _header(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise MetadataFileError(
            path, "unreadable", f"cannot be read ({error.strerror})", "make it a readable file"
        ) from None
    if not header.startswith(_MAGIC[: len(header)]):
        raise MetadataFileError(
            path, "not SQLite", "is not an SQLite database", f"restore a copy of it, or {_AWAY}"
        )
    with _translated(path, write=write):
        tables, outcome = _inspect(path, write=write)
    if outcome != "ok":
        raise _broken(path, "damaged", " ".join(str(outcome).split()))
    if tables and "MLMDEnv" not in tables:
        raise MetadataFileError(
            path,
            "not MLMD",
            "is an SQLite database of another program, not of ML Metadata",
            "name another file or folder",
        )


def _inspect(path: str, *, write: bool, tries: int = _TRIES) -> tuple[set[str], str]:
    """Names of the tables, and the outcome of SQLite's ``quick_check``.

    SQLite looks for a writer's journal first and for its lock afterwards (``hasHotJournal`` in
    pager.c). If the writer ends in between, a reader believes that a crash has left the journal,
    and that the file needs a write. So a reader tries again.
    """
    uri = f"{pathlib.Path(path).absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    connected = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_SECONDS, isolation_level=None)
    with contextlib.closing(connected) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            rows = connection.execute("SELECT name FROM sqlite_master WHERE 1").fetchall()
        except sqlite3.OperationalError as error:
            if write or "readonly" not in str(error) or tries == 1:
                raise
        else:
            [outcome, *_] = connection.execute("PRAGMA quick_check(1)").fetchone()
            _check_size(path)  # within the transaction: no other process writes
            connection.rollback()
            return {name for (name,) in rows}, outcome
    return _inspect(path, write=False, tries=tries - 1)


def open_store(path: str | os.PathLike[str], *, write: bool = False) -> ml_metadata.MetadataStore:
    """Opens the store in a file.

    Args:
        write: whether to open for writing, and to create a missing file.

    Raises:
        MetadataFileError: see :func:`check`; or another version of ML Metadata wrote the file.
    """
    path = os.fspath(path)
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = path
    config.sqlite.connection_mode = (
        config.sqlite.READWRITE_OPENCREATE if write else config.sqlite.READONLY
    )
    try:
        return ml_metadata.MetadataStore(config)
    except (RuntimeError, ml_metadata.errors.StatusError) as error:
        check(path, write=write)
        raise _unknown(path, str(error)) from None


def _header(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(100)


def _check_size(path: str) -> None:
    """Compares a file's size with the number of pages in its header (section 1.3.7)."""
    header, size = _header(path), os.path.getsize(path)
    page = int.from_bytes(header[16:18], "big")
    page = 1 << 16 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    # The number is valid only if the last writer updated it.
    valid = header[24:28] == header[92:96]
    if len(header) < 100 or (valid and pages * page > size):
        whole = f" of {pages * page:,}" if len(header) == 100 else ""
        raise _broken(path, "truncated", f"{size:,}{whole} bytes")


@contextlib.contextmanager
def _translated(path: str, *, write: bool) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise MetadataFileError(
                path,
                "locked",
                f"the database is locked by {_holder(path)}",
                "wait for it to end, or end it",
            ) from None
        if not write and os.path.exists(f"{path}-journal"):
            raise MetadataFileError(
                path,
                "unreadable",
                f"a write was interrupted, and {path}-journal must be rolled back",
                "run stagecraft run with this output to roll it back",
            ) from None
        writes = "readonly" in str(error)
        raise MetadataFileError(
            path,
            "unreadable",
            f"cannot be {'written' if writes else 'read'} ({error})",
            "give this user the right to read and write the file and its folder",
        ) from None
    except sqlite3.DatabaseError as error:
        _check_size(path)
        raise _broken(path, "damaged", str(error)) from None


def _holder(path: str) -> str:
    """The process that holds a lock on a file, by the kernel's table (proc_locks(5))."""
    with contextlib.suppress(OSError, ValueError):
        inode = str(os.stat(path).st_ino)
        for line in pathlib.Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] != "->" and fields[5].rpartition(":")[2] == inode and int(fields[4]) > 0:
                name = pathlib.Path("/proc", fields[4], "comm").read_text().strip()
                return f"process {fields[4]} ({name})"
    return "another process"


def _broken(path: str, problem: Problem, detail: str) -> MetadataFileError:
    return MetadataFileError(
        path, problem, f"the database is {problem} ({detail})", f"restore a copy of it, or {_AWAY}"
    )


def _unknown(path: str, message: str) -> MetadataFileError:
    if match := _VERSIONS.search(message):
        stored, supported = match.groups()
        return MetadataFileError(
            path,
            "another schema",
            f"has schema version {stored} of ML Metadata; the installed ML Metadata reads version "
            f"{supported}",
            f"use the environment that wrote it, or {_AWAY}",
        )
    if not os.path.exists(path) or not os.path.getsize(path):
        return MetadataFileError(path, "unreadable", "is empty", "run 'stagecraft run' first")
    return MetadataFileError(
        path,
        "damaged",
        f"ML Metadata cannot open it ({message.strip()[:80]})",
        f"restore a copy of it, or {_AWAY}",
    )
