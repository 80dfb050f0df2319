"""A lease in S3, MinIO and similar stores, by conditional writes.

``If-None-Match: *`` creates an object that does not exist. ``If-Match: ETag`` replaces an object
that has not changed. Otherwise both answer 412
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html). Of the older stores
that support neither, some answer 501, and some ignore the condition. So :meth:`S3Lease.check_store`
tries both on an object of its own. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from typing import Any

from tfx.dsl.io.filesystem import NotFoundError

from stagecraft.common.errors import UserError
from stagecraft.components.object_store.endpoint import NoBucketError, endpoint_of, explained
from stagecraft.components.object_store.location import Location, locate
from stagecraft.trainer_module.checkpointing.lease import Conflict, Lease, Record

NAME = "lease.json"


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
