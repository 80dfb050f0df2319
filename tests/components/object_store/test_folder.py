"""Folders of an object store: there and back, and patience with a store that has answered."""

from collections.abc import Iterator

import pytest
import tensorflow as tf
from error_server import error_server

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.object_store import folder
from stagecraft.components.object_store.folder import StoredFolder


@pytest.fixture
def stored(bucket: str) -> StoredFolder:
    return StoredFolder(f"s3://{bucket}/a/b/", sleep=lambda seconds: None)


def test_there_and_back(stored, tmp_path):
    made = tmp_path / "made"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "file").write_bytes(b"\0\1" * 1_000_000)
    (made / "deep" / "er" / "file").write_text("text")
    stored.upload_all(made, "inputs")
    stored.write("inputs-too/file", b"")
    assert stored.names() == ["inputs-too/file", "inputs/deep/er/file", "inputs/file"]
    stored.download_all("inputs", tmp_path / "found")
    assert (tmp_path / "found" / "file").read_bytes() == b"\0\1" * 1_000_000
    assert (tmp_path / "found" / "deep" / "er" / "file").read_text() == "text"
    removed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "remove", removed.append)
        stored.clear(last="inputs-too/file")
    assert removed == ["inputs/deep/er/file", "inputs/file", "inputs-too/file"]
    stored.clear()
    assert stored.names() == []


def test_a_file_that_is_not_there(stored, tmp_path):
    assert stored.names() == []
    assert stored.read("file") is None
    stored.remove("file")
    with pytest.raises(FileNotFoundError, match="a/b/file"):
        stored.download("file", tmp_path / "file")


def test_a_bucket_that_is_not_there(bucket):
    with pytest.raises(UserError, match="s3://none/a"):
        StoredFolder("s3://none/a").write("file", b"")
    assert StoredFolder("s3://none/a").names() == []


@pytest.fixture
def failing(aws: None, registry: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What is slept while the store fails, as S3 does under load."""
    with error_server(503, "SlowDown", "Reduce your request rate.") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        yield []


@pytest.mark.parametrize("what", ["names", "read", "write", "remove"])
def test_a_store_that_fails_is_not_an_empty_one(failing, monkeypatch, what):
    assert sum(folder._PAUSES) > 60
    monkeypatch.setattr(folder, "_PAUSES", (1.0,))  # each is several of the client's
    stored = StoredFolder("s3://bucket/a", sleep=failing.append)
    given = {"names": (), "read": ("file",), "write": ("file", b""), "remove": ("file",)}[what]
    with pytest.raises(TransientError, match="AWS_SECRET_ACCESS_KEY"):
        getattr(stored, what)(*given)
    assert failing == [1.0]


def test_a_store_that_comes_back(stored, monkeypatch):
    asked = []

    def fail_twice(uri: str) -> bytes:
        asked.append(uri)
        if len(asked) < 3:
            raise TransientError("the store cannot be used.")
        return b"content"

    monkeypatch.setattr(folder.filesystem, "read", fail_twice)
    assert stored.read("file") == b"content"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (tf.errors.NotFoundError(None, None, "gone"), FileNotFoundError),
        (tf.errors.UnavailableError(None, None, "away"), TransientError),
        (tf.errors.PermissionDeniedError(None, None, "no"), UserError),
    ],
)
def test_what_tensorflow_says_of_gs(stored, monkeypatch, error, expected):
    def fail(uri: str) -> bytes:
        raise error

    monkeypatch.setattr(folder.filesystem, "read", fail)
    with pytest.raises(expected) as found:
        stored.read("file")
    assert found.type is expected
