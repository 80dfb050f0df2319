"""A location in an object store: an address, its server, and its file system of fsspec.

The environment variables are those of the AWS SDKs: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or
a role, or ~/.aws), and AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for another server than AWS.
STAGECRAFT_STORE replaces all stores with a folder. :func:`permanent_uri` gives the address of which
a folder is a local copy.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import functools
import io
import os
import posixpath
import shutil
import socket
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from tfx.dsl.io import filesystem

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, TransientError, UserError
from stagecraft.common.settings import Settings

STORE = "STAGECRAFT_STORE"
"""Environment variable: a folder in place of all object stores, also ``gs://``, for tests and the
emulated launcher. ``minio://bucket/key`` is its file ``minio/bucket/key``."""

STORE_NEEDS_KEYS = "STAGECRAFT_STORE_NEEDS_KEYS"
"""Environment variable: if set, STAGECRAFT_STORE's folder needs AWS_ACCESS_KEY_ID, as a store does,
for ``s3://`` and ``minio://``."""

# The default of KFP's launcher for minio:// (DefaultMinioEndpointInMultiUserMode in
# backend/src/v2/objectstore/config.go); 2.16 replaced MinIO with SeaweedFS.
_KFP_HOSTS = ("minio-service.kubeflow", "seaweedfs.kubeflow")
_KFP_PORT = 9000

_SUBFOLDERS = {"gs": "gcs"}  # folders that differ from their scheme, as KFP's launcher names them

# Addresses in path style: virtual hosts of buckets need DNS entries. Only required checksums:
# older versions of MinIO support no others.
_OWN_STORE = {
    "s3": {"addressing_style": "path"},
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}

_ACCESS_KEY = "AWS_ACCESS_KEY_ID"

_BUFFER = 1 << 20  # bytes


class NoCredentialsError(UserError):
    """The emulated store got no keys."""

    def __init__(self, address: str):
        super().__init__(
            f"{address}: this step has no credentials for the object store. On Kubeflow, it would "
            "fail, too. Name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in "
            "kubeflow.every_step.secrets.",
            setting="kubeflow.every_step.secrets",
            file=address,
        )


class NoBucketError(UserError):
    """A bucket does not exist, or the credentials do not show it."""

    def __init__(self, address: str):
        super().__init__(
            f"{address}: the bucket does not exist, or these credentials have no access to it; "
            "create it, or correct the setting (kubeflow.job.folder, kubeflow.checkpoints)",
            file=address,
        )


def endpoint_of(uri: str) -> str | None:
    """URL of the store's server; None means AWS."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if url := os.environ.get(name):
            if not url.startswith(("http://", "https://")):
                example = f"a URL such as http://{_KFP_HOSTS[0]}:{_KFP_PORT}"
                raise SettingError(name, url, "is not a URL", example)
            return url
    return _kfp_endpoint() if uri.startswith("minio://") else None


@functools.cache
def _kfp_endpoint() -> str:
    for host in _KFP_HOSTS:
        with contextlib.suppress(OSError):
            socket.getaddrinfo(host, _KFP_PORT)
            return f"http://{host}:{_KFP_PORT}"
    return f"http://{_KFP_HOSTS[0]}:{_KFP_PORT}"


@contextlib.contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turns an object store's errors into sentences.

    Raises:
        NotFoundError: TFX's error; the file, folder or bucket does not exist.
        UserError: credentials are missing, or the store refuses them.
        TransientError: the store cannot be reached, or fails.
    """
    try:
        yield
    except filesystem.NotFoundError:
        raise
    except (FileNotFoundError, NotADirectoryError):  # a/b/c where a/b is a file, on a disk
        raise filesystem.NotFoundError(
            errno.ENOENT, "No such file, folder or bucket", uri
        ) from None
    except _errors()[0] as error:  # s3fs turns S3's answers into OSErrors
        kind = UserError if isinstance(error, _errors()[1]) else TransientError
        cause = str(error).rstrip(".")
        raise kind(
            f"{uri}: the object store at {endpoint_of(uri) or 'AWS'} cannot be used: {cause}. "
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to keys that may read and write "
            "there. If the store is not AWS, set AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) to its "
            "URL.",
            file=uri,
        ) from error


def _errors() -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """A store's errors, and those of them that a retry does not help against."""
    if os.environ.get(STORE):
        return (OSError,), (OSError,)
    from botocore import exceptions

    return (OSError, exceptions.BotoCoreError), (
        PermissionError,
        exceptions.CredentialRetrievalError,
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.ProfileNotFound,
    )


class Location(NamedTuple):
    """An address with its store."""

    store: Any  # the fsspec file system
    path: str

    root: str  # prefix of the path that the address does not have: STAGECRAFT_STORE's folder
    uri: str

    def uri_of(self, path: str) -> str:
        """The address of another path in the same store."""
        return f"{self.uri.partition('://')[0]}://{path[len(self.root) :]}"

    def info(self) -> dict[str, Any]:
        """Name, size, type and time, as fsspec gives them."""
        with explained(self.uri):
            return cast(dict[str, Any], self.store.info(self.path))

    def is_folder(self) -> bool:
        """Whether it is a folder, not a file. Raises NotFoundError if it does not exist."""
        return bool(self.info()["type"] == "directory")

    def entries(self) -> dict[str, bool]:
        """Name of each entry of this folder, and whether the entry is a folder."""
        with explained(self.uri):
            listed = self.store.ls(self.path, detail=True)
        if any(entry["name"] == self.path and entry["type"] == "file" for entry in listed):
            raise NotADirectoryError(errno.ENOTDIR, "Not a folder", self.uri)
        return {
            posixpath.basename(entry["name"]): entry["type"] == "directory"
            for entry in listed
            # Some tools mark a folder with an empty object of its name with a slash.
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
        """Opens for ``rb``, ``wb`` or ``ab``. Closing the file completes a write."""
        if "r" in mode and self.is_folder():
            raise IsADirectoryError(errno.EISDIR, "Is a folder", self.uri)
        with explained(self.uri):
            raw = _Raw(self.store.open(self.path, mode), mode, self.uri)
        return io.BufferedReader(raw, _BUFFER) if "r" in mode else io.BufferedWriter(raw, _BUFFER)

    def copy_to(self, target: Location) -> None:
        """Copies this file; if both places are in the same store, the server copies."""
        if self.store is target.store:
            with explained(self.uri):
                self.store.cp_file(self.path, target.path)
            return
        with self.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, _BUFFER)

    def remove(self, files: list[str]) -> None:
        """Removes these files, and a folder of STAGECRAFT_STORE with them."""
        with explained(self.uri):
            # One by one: S3's request for many needs a checksum that older MinIOs lack.
            for path in files:
                self.store.rm_file(path)
            if self.root and os.path.isdir(self.path):
                shutil.rmtree(self.path)


def locate(address: str | bytes) -> Location:
    """Finds the store of an address; sends no request."""
    uri = os.fsdecode(address)
    secrets.refuse_in_address(uri, Settings.credentials_advice)
    scheme, _, within = uri.partition("://")
    if not within.strip("/"):
        raise UserError(
            f"{uri}: names no bucket; use an address like {scheme}://bucket/path.", file=uri
        )
    within = within.rstrip("/")
    if folder := os.environ.get(STORE):
        if scheme != "gs" and STORE_NEEDS_KEYS in os.environ and _ACCESS_KEY not in os.environ:
            raise NoCredentialsError(uri)
        root = os.path.join(os.path.abspath(folder), _SUBFOLDERS.get(scheme, scheme), "")
        return Location(_filesystem(uri, "file", auto_mkdir=True), root + within, root, uri)
    endpoint = endpoint_of(uri)
    store = _filesystem(
        uri,
        "s3",
        # Explicit, so that fsspec's cache of connections distinguishes them.
        key=os.environ.get(_ACCESS_KEY),
        secret=os.environ.get("AWS_SECRET_ACCESS_KEY"),
        token=os.environ.get("AWS_SESSION_TOKEN"),
        endpoint_url=endpoint,
        config_kwargs=_OWN_STORE if endpoint else {},
        # Other processes write, too.
        use_listings_cache=False,
    )
    return Location(store, within, "", uri)


def _filesystem(uri: str, protocol: str, **options: Any) -> Any:
    try:
        import fsspec

        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        raise UserError(
            f"{uri}: object stores need packages that are not installed ({error}). Install them: "
            "pip install fsspec s3fs",
            file=uri,
        ) from None


class _Raw(io.RawIOBase):
    """A file of fsspec with explained errors; closing it writes most of the data."""

    def __init__(self, stream: Any, mode: str, uri: str) -> None:
        self._stream, self._uri = stream, uri
        self.mode = mode
        """``rb``, ``wb`` or ``ab``; Beam reads it."""

    def readable(self) -> bool:
        return "r" in self.mode

    def writable(self) -> bool:
        return not self.readable()

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


_uris: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "permanent_uris", default=MappingProxyType({})
)


@contextlib.contextmanager
def copied(uris: Mapping[str, str]) -> Iterator[None]:
    """Sets the permanent URIs of local copies, by their folders, during the block.

    On Kubeflow, the launcher downloads inputs, and executors see the folders of the copies.
    """
    token = _uris.set(uris)
    try:
        yield
    finally:
        _uris.reset(token)


def permanent_uri(folder: str) -> str:
    """The permanent URI of a copy; the folder itself if it is no copy."""
    return _uris.get().get(folder, folder)
