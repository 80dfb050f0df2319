"""Leases in object stores, by conditional writes. Imports no TensorFlow.

In S3, MinIO and similar stores, ``If-None-Match: *`` creates an object that does not exist.
``If-Match: ETag`` replaces an object that has not changed. Otherwise both answer 412
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html). Of the older stores
that support neither, some answer 501, and some ignore the condition. So :meth:`S3Lease.check_store`
tries both on an object of its own.

In Google Cloud Storage, a write with ``ifGenerationMatch`` succeeds if the object has this
generation; 0 means that it does not exist
(https://cloud.google.com/storage/docs/request-preconditions). TensorFlow has no such writes, so
this module uses Google's client, which TFX installs. The client finds credentials as TensorFlow
does (GOOGLE_APPLICATION_CREDENTIALS, or the machine's account).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import posixpath
import uuid
from collections.abc import Iterator
from typing import Any

from tfx.dsl.io.filesystem import NotFoundError

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.object_store.location import (
    STORE,
    Location,
    NoBucketError,
    endpoint_of,
    explained,
    locate,
)
from stagecraft.trainer_module.checkpointing.lease import Conflict, Lease, Record, VolumeLease

NAME = "lease.json"
_SECONDS = 30.0  # of one request to Google


class _UnknownConditionError(Exception):
    """A store rejects conditional writes."""


class NoLeasesError(UserError):
    """The store has no conditional writes: of two concurrent writers, the last one wins."""

    def __init__(self, place: str, store: str, why: str):
        self.place, self.store = place, store
        super().__init__(
            f"{place}: {store} supports no leases, which need conditional writes: {why}", file=place
        )


class S3Lease(Lease):
    """A :class:`Lease` in an object of S3."""

    def __init__(self, address: str, *, name: str, seconds: float, grace: float):
        super().__init__(address, name=name, seconds=seconds, grace=grace)
        self._place = locate(f"{address}/{NAME}")

    def check_store(self) -> None:
        """Checks that the store has conditional writes, with an object that it removes."""
        store = f"the object store at {endpoint_of(self.place) or 'AWS'}"
        probe = locate(f"{self.place}/.{uuid.uuid4().hex}.probe")
        try:
            for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0123456789abcdef"'}):
                _put(probe, b"")
                try:
                    _put(probe, b"", **condition)
                except Conflict:
                    continue
                header = "If-None-Match" if "IfNoneMatch" in condition else "If-Match"
                raise NoLeasesError(self.place, store, f"it ignores {header}")
        except _UnknownConditionError as error:
            raise NoLeasesError(self.place, store, str(error)) from None
        finally:
            with contextlib.suppress(OSError, UserError):
                probe.remove([probe.path])

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`; a malformed record may be replaced."""
        from fsspec.asyn import sync

        bucket, key = _split(self._place)
        try:
            with explained(self._place.uri):
                content, version = sync(
                    self._place.store.loop, _get, self._place.store, bucket, key
                )
        except NotFoundError:
            return None, None
        try:
            return Record.parsed(content), version
        except ValueError:
            return None, version

    def write(self, record: Record, version: str | None) -> str:
        """See :class:`Lease`."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            return _put(self._place, record.json(), **condition)
        except NotFoundError:
            if version is None:
                raise NoBucketError(self.place) from None
            raise Conflict from None  # another process removed it


def _put(place: Location, content: bytes, **condition: str) -> str:
    bucket, key = _split(place)
    with explained(place.uri):
        try:
            answer = place.store.call_s3(
                "put_object", Bucket=bucket, Key=key, Body=content, **condition
            )
        except OSError as error:
            status = _status(error)
            if condition and status in (409, 412):  # 409: concurrent writes
                raise Conflict from None
            if condition and status == 501:
                raise _UnknownConditionError(f"it answers 501 ({error})") from None
            raise
    return str(answer["ETag"])


async def _get(store: Any, bucket: str, key: str) -> tuple[bytes, str]:
    answer = await store._call_s3("get_object", Bucket=bucket, Key=key)
    try:
        return bytes(await answer["Body"].read()), str(answer["ETag"])
    finally:
        answer["Body"].close()


def _status(error: OSError) -> int:
    answer = getattr(error.__cause__, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _split(place: Location) -> tuple[str, str]:
    bucket, _, key = posixpath.normpath(place.path).partition("/")
    return bucket, key


class GcsLease(Lease):
    """A :class:`Lease` in an object of ``gs://``."""

    def __init__(self, address: str, *, name: str, seconds: float, grace: float):
        """Sends no request yet."""
        super().__init__(address, name=name, seconds=seconds, grace=grace)
        bucket, _, folder = address.removeprefix("gs://").partition("/")
        self._name = f"{folder.strip('/')}/{NAME}".lstrip("/")
        self._bucket = _client(address).bucket(bucket)

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`; a malformed record may be replaced."""
        while True:
            with self._explained():
                blob = self._bucket.get_blob(self._name, timeout=_SECONDS)
            if blob is None:
                return None, None
            version = str(blob.generation)
            # Only this generation: write() replaces the content that is read here.
            with contextlib.suppress(Conflict), self._explained(existed=True):
                content = blob.download_as_bytes(
                    if_generation_match=blob.generation, timeout=_SECONDS
                )
                try:
                    return Record.parsed(content), version
                except ValueError:
                    return None, version

    def write(self, record: Record, version: str | None) -> str:
        """See :class:`Lease`."""
        blob = self._bucket.blob(self._name)
        with self._explained():
            blob.upload_from_string(
                record.json(),
                content_type="application/json",
                if_generation_match=int(version or 0),
                timeout=_SECONDS,
            )
        return str(blob.generation)

    @contextlib.contextmanager
    def _explained(self, existed: bool = False) -> Iterator[None]:
        """Maps the client's errors; an object that existed may be gone (Conflict)."""
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except exceptions.PreconditionFailed:
            raise Conflict from None
        except exceptions.NotFound:
            if existed:
                raise Conflict from None
            raise NoBucketError(self.place) from None
        except (exceptions.Forbidden, exceptions.Unauthorized, GoogleAuthError) as error:
            raise UserError(
                f"{self.place}: the lease cannot be read or written: {error}. The account needs "
                "storage.objects.get, create and delete there.",
                file=self.place,
            ) from None
        except (exceptions.GoogleAPIError, requests.RequestException) as error:
            raise TransientError(
                f"{self.place} cannot be used: {error}.", file=self.place
            ) from None


def _client(address: str) -> Any:
    try:
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import storage
    except ImportError as error:
        raise UserError(
            f"{address}: a lease needs a package that is not installed ({error}). Install it: "
            "pip install google-cloud-storage.",
            file=address,
        ) from None
    try:
        return storage.Client(project=None)
    except (GoogleAuthError, OSError) as error:
        raise UserError(
            f"{address}: no credentials for Google Cloud Storage ({error}); set "
            "GOOGLE_APPLICATION_CREDENTIALS, or run as an account with credentials.",
            file=address,
        ) from None


def open_lease(address: str, *, name: str, seconds: float, grace: float) -> Lease:
    """Opens the lease on a folder of a store; claims nothing."""
    if os.environ.get(STORE):
        root = pathlib.Path(locate(address).path)
        return VolumeLease(root, name=name, seconds=seconds, grace=grace)
    if address.startswith("gs://"):
        return GcsLease(address, name=name, seconds=seconds, grace=grace)
    return S3Lease(address, name=name, seconds=seconds, grace=grace)
