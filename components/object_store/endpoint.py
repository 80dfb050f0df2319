"""The server that stores the objects of an address, and the messages for its errors.

The environment variables are those of the AWS SDKs: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or
a role, or ~/.aws), and AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for another server than AWS.
STAGECRAFT_STORE replaces all stores with a folder.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import Iterator

from tfx.dsl.io import filesystem

from stagecraft.common.errors import SettingError, TransientError, UserError

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
