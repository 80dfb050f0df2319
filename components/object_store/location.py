"""A place in an object store: an address, and how to reach it through fsspec."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import shutil
from typing import Any, NamedTuple, cast

from stagecraft.components.object_store.endpoint import STORE, endpoint_of, explained
from stagecraft.schemas import secrets
from stagecraft.schemas.base_settings import Settings
from stagecraft.schemas.errors import UserError

_SUBFOLDERS = {"gs": "gcs"}
"""Those not called as their scheme, as in the folders that KFP's launcher copies to."""

# An address below the store's name (path style), as hosts called after buckets need a DNS of
# their own. And no checksums but those that an operation requires: older MinIOs know no others.
_OWN_STORE = {
    "s3": {"addressing_style": "path"},
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}

_BUFFER = 1 << 20  # bytes


class Place(NamedTuple):
    """An address, and where that is."""

    store: Any
    """The fsspec file system."""

    path: str
    """The path there."""

    root: str
    """What that path begins with that the address does not: STAGECRAFT_STORE's folder."""

    uri: str
    """The address."""

    def uri_of(self, path: str) -> str:
        """The address of another path in the same store."""
        return f"{self.uri.partition('://')[0]}://{path[len(self.root) :]}"

    def info(self) -> dict[str, Any]:
        """What fsspec knows of it: name, size, type, and some form of time."""
        with explained(self.uri):
            return cast(dict[str, Any], self.store.info(self.path))

    def is_folder(self) -> bool:
        """Whether it is a folder, not a file. Raises NotFoundError where it is neither."""
        return bool(self.info()["type"] == "directory")

    def entries(self) -> dict[str, bool]:
        """Name of each thing in this folder, and whether that is a folder."""
        with explained(self.uri):
            listed = self.store.ls(self.path, detail=True)
        if any(entry["name"] == self.path and entry["type"] == "file" for entry in listed):
            raise NotADirectoryError(errno.ENOTDIR, "Not a folder", self.uri)
        return {
            posixpath.basename(entry["name"]): entry["type"] == "directory"
            for entry in listed
            # Some tools mark a folder with an empty object that is called as it is, with a slash.
            if not entry["name"].endswith("/")
        }

    def files(self) -> list[str]:
        """Paths of all files in this folder, at any depth, or of the file itself."""
        with explained(self.uri):
            files = self.store.find(self.path)
        if not files:
            self.info()
        return cast(list[str], files)

    def open(self, mode: str) -> io.BufferedReader | io.BufferedWriter:
        """Opens for ``rb``, ``wb`` or ``ab``. What is written is there when it is closed."""
        if "r" in mode and self.is_folder():
            raise IsADirectoryError(errno.EISDIR, "Is a folder", self.uri)
        with explained(self.uri):
            raw = _Raw(self.store.open(self.path, mode), self.uri)
        return io.BufferedReader(raw, _BUFFER) if "r" in mode else io.BufferedWriter(raw, _BUFFER)

    def copy_to(self, target: Place) -> None:
        """Copies this file, within the store where both are in the same one."""
        if self.store is target.store:
            with explained(self.uri):
                self.store.cp_file(self.path, target.path)
            return
        with self.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, _BUFFER)

    def remove(self, files: list[str]) -> None:
        """Removes these files of it, and a folder of STAGECRAFT_STORE with them."""
        with explained(self.uri):
            # One by one: S3's request for many wants a checksum that older MinIOs don't know.
            for path in files:
                self.store.rm_file(path)
            if self.root and os.path.isdir(self.path):
                shutil.rmtree(self.path)


def locate(address: str | bytes) -> Place:
    """Finds the store of an address; asks it nothing yet.

    Raises:
      UserError: the address names no bucket or holds credentials, or s3fs is not installed.
    """
    uri = os.fsdecode(address)
    secrets.refuse_in_address(uri, Settings.credentials_advice)
    scheme, _, within = uri.partition("://")
    if not within.strip("/"):
        raise UserError(f"{uri}: names no bucket; expected an address like {scheme}://bucket/path.")
    within = within.rstrip("/")
    if folder := os.environ.get(STORE):
        root = os.path.join(os.path.abspath(folder), _SUBFOLDERS.get(scheme, scheme), "")
        return Place(_filesystem(uri, "file", auto_mkdir=True), root + within, root, uri)
    endpoint = endpoint_of(uri)
    store = _filesystem(
        uri,
        "s3",
        # Given, and not left to botocore, so that fsspec's cache of connections tells them apart.
        key=os.environ.get("AWS_ACCESS_KEY_ID"),
        secret=os.environ.get("AWS_SECRET_ACCESS_KEY"),
        token=os.environ.get("AWS_SESSION_TOKEN"),
        endpoint_url=endpoint,
        config_kwargs=_OWN_STORE if endpoint else {},
        # Other processes write too.
        use_listings_cache=False,
    )
    return Place(store, within, "", uri)


def _filesystem(uri: str, protocol: str, **options: Any) -> Any:
    try:
        import fsspec

        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        raise UserError(
            f"{uri}: reading object stores needs packages that are not installed ({error}). "
            "Install them: pip install 'stagecraft[kubeflow]'."
        ) from None


class _Raw(io.RawIOBase):
    """A file of fsspec whose errors are explained; most writing happens when it is closed."""

    def __init__(self, stream: Any, uri: str) -> None:
        self._stream, self._uri = stream, uri

    @property
    def mode(self) -> str:
        """``rb`` or ``wb``, as Beam asks of a file."""
        return "rb" if self.readable() else "wb"

    def readable(self) -> bool:
        return bool(self._stream.readable())

    def writable(self) -> bool:
        return bool(self._stream.writable())

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readinto(self, buffer: Any) -> int:
        with explained(self._uri):
            return int(self._stream.readinto(buffer))

    def write(self, data: Any) -> int:
        with explained(self._uri):
            return int(self._stream.write(data))

    def close(self) -> None:
        if not self.closed:
            try:
                with explained(self._uri):
                    self._stream.close()
            finally:
                super().close()
