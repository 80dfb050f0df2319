"""A lease on a folder of an object store: of S3's kind, by conditional writes.

``If-None-Match: *`` creates an object where there is none, ``If-Match: ETag`` replaces it if nobody
else has; both answer 412 otherwise
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html). Older stores know
neither: some answer 501, some write all the same. So each is tried first, on an object that is
nobody's. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import posixpath
import uuid
from typing import Any

from tfx.dsl.io.filesystem import NotFoundError

from stagecraft.components.object_store.endpoint import STORE, endpoint_of, explained
from stagecraft.components.object_store.location import Place, locate
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing.lease import Conflict, Lease
from stagecraft.trainer_module.checkpointing.lease_record import Record
from stagecraft.trainer_module.checkpointing.volume_lease import VolumeLease

NAME = "lease.json"


class _UnknownConditionError(Exception):
    """A store does not know conditional writes, and says so."""


class NoLeasesError(UserError):
    """The store has no conditional writes: of two that write at once, the last one wins."""

    def __init__(self, place: str, store: str, why: str):
        self.place, self.store = place, store
        super().__init__(f"{place}: {store} keeps no lease: {why}")


def of(address: str, *, name: str, seconds: float, grace: float) -> Lease:
    """The lease on a folder of a store.

    Args:
        address: of the folder.
        name: of the holder.
        seconds: see :class:`Lease`.
        grace: see :class:`Lease`.

    Raises:
        NoLeasesError: the store has no conditional writes.
        UserError: the store cannot be used.
    """
    if os.environ.get(STORE):
        root = pathlib.Path(locate(address).path)
        return VolumeLease(root, name=name, seconds=seconds, grace=grace)
    if address.startswith("gs://"):
        from stagecraft.components.object_store.lease_gcs import GcsLease

        return GcsLease(address, name=name, seconds=seconds, grace=grace)
    return S3Lease(address, name=name, seconds=seconds, grace=grace)


class S3Lease(Lease):
    """A :class:`Lease` in an object of S3, MinIO and their like."""

    def __init__(self, address: str, *, name: str, seconds: float, grace: float):
        """Asks nothing yet."""
        super().__init__(address, name=name, seconds=seconds, grace=grace)
        self._place = locate(f"{address}/{NAME}")

    def check_store(self) -> None:
        """Finds out whether the store has conditional writes, with an object that it removes.

        Raises:
            NoLeasesError: it has none.
            UserError: the store cannot be used.
        """
        store = f"the object store at {endpoint_of(self.place) or 'AWS'}"
        probe = locate(f"{self.place}/.{uuid.uuid4().hex}.probe")
        try:
            for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0123456789abcdef"'}):
                _written(probe, b"")
                try:
                    _written(probe, b"", **condition)
                except Conflict:
                    continue
                header = "If-None-Match" if "IfNoneMatch" in condition else "If-Match"
                raise NoLeasesError(self.place, store, f"it ignores {header} when it writes")
        except _UnknownConditionError as error:
            raise NoLeasesError(self.place, store, str(error)) from None
        finally:
            with contextlib.suppress(OSError, UserError):
                probe.remove([probe.path])

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`; what is none is there to be replaced."""
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
            return _written(self._place, record.json(), **condition)
        except NotFoundError:
            if version is None:
                raise UserError(
                    f"{self.place}: there is no such bucket, or it may not be seen; make it, or "
                    "correct the setting (kubeflow.checkpoints)"
                ) from None
            raise Conflict from None  # removed meanwhile


def _written(place: Place, content: bytes, **condition: str) -> str:
    """The ETag of an object that was written.

    Raises:
        Conflict: the condition was not met.
        _UnknownConditionError: the store knows no such condition.
    """
    bucket, key = _split(place)
    with explained(place.uri):
        try:
            answer = place.store.call_s3(
                "put_object", Bucket=bucket, Key=key, Body=content, **condition
            )
        except OSError as error:
            status = _status(error)
            if condition and status in (409, 412):  # 409: of two at once
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
    """Of the answer that s3fs has made an OSError of."""
    answer = getattr(error.__cause__, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _split(place: Place) -> tuple[str, str]:
    bucket, _, key = posixpath.normpath(place.path).partition("/")
    return bucket, key
