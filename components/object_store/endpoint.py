"""Which server keeps the objects of an address, and what to say if it does not answer.

The variables are those of the AWS SDKs: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or whatever
else botocore finds (a role, ~/.aws); AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for a store of one's
own. STAGECRAFT_STORE puts a folder in the place of all stores.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Iterator

from tfx.dsl.io import filesystem

from stagecraft.schemas.errors import TransientError, UserError

STORE = "STAGECRAFT_STORE"
"""Environment variable: a folder that stands for all object stores, ``gs://`` too, in a test or
under an emulated launcher. ``minio://bucket/key`` is its file ``minio/bucket/key``."""

# What KFP's launcher takes for minio:// in want of a setting (DefaultMinioEndpointInMultiUserMode
# in backend/src/v2/objectstore/config.go); 2.16 put SeaweedFS in MinIO's place.
_KFP_HOSTS = ("minio-service.kubeflow", "seaweedfs.kubeflow")
_KFP_PORT = 9000


def endpoint_of(uri: str) -> str | None:
    """URL of the store's server; None means AWS.

    Raises:
      UserError: the variable holds no URL.
    """
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if given := os.environ.get(name):
            if not given.startswith(("http://", "https://")):
                raise UserError(
                    f"{name}={given}: expected a URL, such as http://{_KFP_HOSTS[0]}:{_KFP_PORT}."
                )
            return given
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
    """Says what an object store's errors mean.

    Raises:
      NotFoundError: TFX's own; there is no such file, folder or bucket.
      UserError: there are no credentials, or the store refuses them.
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
    except _errors() as error:  # s3fs makes OSErrors of what S3 answers
        kind = UserError if isinstance(error, _refusals()) else TransientError
        raise kind(
            f"{uri}: the object store at {endpoint_of(uri) or 'AWS'} cannot be used: {error}. "
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to keys that it knows and that may "
            "read and write there, and AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) to its URL if "
            "that is another one."
        ) from error


def _errors() -> tuple[type[Exception], ...]:
    if os.environ.get(STORE):
        return (OSError,)
    from botocore.exceptions import BotoCoreError

    return OSError, BotoCoreError


def _refusals() -> tuple[type[Exception], ...]:
    """What asking again does not help against."""
    if os.environ.get(STORE):
        return (OSError,)
    from botocore.exceptions import (
        CredentialRetrievalError,
        NoCredentialsError,
        PartialCredentialsError,
        ProfileNotFound,
    )

    return (
        PermissionError,
        CredentialRetrievalError,
        NoCredentialsError,
        PartialCredentialsError,
        ProfileNotFound,
    )
