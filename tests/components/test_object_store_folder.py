"""Folders of an object store: there and back, and patience with a store that has answered."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from stagecraft.components import object_store_folder
from stagecraft.components.object_store_folder import StoredFolder
from stagecraft.schemas.errors import UserError


@pytest.fixture
def stored(bucket: str) -> StoredFolder:
    return StoredFolder(f"s3://{bucket}/a/b/", sleep=lambda seconds: None)


def test_there_and_back(stored: StoredFolder, tmp_path: pathlib.Path) -> None:
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
    stored.clear()
    assert stored.names() == []


def test_a_file_that_is_not_there(stored: StoredFolder, tmp_path: pathlib.Path) -> None:
    assert stored.names() == []
    assert stored.read("file") is None
    stored.remove("file")
    with pytest.raises(FileNotFoundError, match="a/b/file"):
        stored.download("file", tmp_path / "file")


@pytest.mark.parametrize("answered", [True, False])
def test_patience(stored: StoredFolder, monkeypatch: pytest.MonkeyPatch, answered: bool) -> None:
    """Of a store that has never answered, the settings are wrong; another one will come back."""
    asked = []

    def fail_twice(uri: str) -> bytes:
        asked.append(uri)
        if len(asked) < 3:
            raise UserError("the store cannot be used.")
        return b"content"

    if answered:
        stored.write("other", b"")
    monkeypatch.setattr(object_store_folder.object_store, "read", fail_twice)
    if answered:
        assert stored.read("file") == b"content"
        return
    with pytest.raises(UserError, match="cannot be used"):
        stored.read("file")
    assert len(asked) == 1


def test_patience_ends(stored: StoredFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []

    def fail(uri: str) -> bytes:
        raise UserError("the store cannot be used.")

    stored.write("other", b"")
    monkeypatch.setattr(stored, "_sleep", slept.append)
    monkeypatch.setattr(object_store_folder.object_store, "read", fail)
    with pytest.raises(UserError, match="cannot be used"):
        stored.read("file")
    assert sum(slept) > 60
