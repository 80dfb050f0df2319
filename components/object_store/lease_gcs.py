"""A lease in Google Cloud Storage, by generations.

A write with ``ifGenerationMatch`` succeeds if the object has this generation; 0 means that it does
not exist (https://cloud.google.com/storage/docs/request-preconditions). TensorFlow has no such
writes, so this module uses Google's client, which TFX installs. The client finds credentials as
TensorFlow does (GOOGLE_APPLICATION_CREDENTIALS, or the machine's account).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.object_store.endpoint import NoBucketError
from stagecraft.trainer_module.checkpointing.lease import Conflict, Lease, Record

NAME = "lease.json"
_SECONDS = 30.0  # of one request


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
