"""Object stores to test against: an S3 server in this process, or a folder in its place."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator

import pytest

BUCKETS = itertools.count()


@pytest.fixture
def registry() -> Iterator[None]:
    """TFX's file systems, put back as they were."""
    from tfx.dsl.io import fileio, filesystem_registry

    assert fileio  # it registers TFX's own ones
    kept = filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY
    by_scheme = dict(kept._preferred_filesystem_by_scheme)
    priority = dict(kept._filesystem_priority)
    yield
    kept._preferred_filesystem_by_scheme = by_scheme
    kept._filesystem_priority = priority


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """URL of an empty S3 server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def aws(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those that a test makes, and no retries to wait for."""
    for name in ("STAGECRAFT_STORE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # Nothing answers there.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")


@pytest.fixture
def bucket(registry: None, aws: None, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an empty bucket of the server, which our file system talks to."""
    import fsspec

    from stagecraft.components import object_store

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server)
    object_store.register()
    name = f"bucket-{next(BUCKETS)}"
    options = {"key": "key", "secret": "secret", "endpoint_url": s3_server}
    fsspec.filesystem("s3", **options).call_s3("create_bucket", Bucket=name)
    return name


@pytest.fixture
def folder_store(
    registry: None, aws: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    """The folder that stands for all stores."""
    from stagecraft.components import object_store

    monkeypatch.setenv("STAGECRAFT_STORE", str(tmp_path / "store"))
    object_store.register()
    return tmp_path / "store"
