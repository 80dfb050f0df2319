"""Addresses, and the launcher's copies of what is there."""

import pytest

from stagecraft.pipeline.kubeflow.entrypoint import addresses


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("gs://bucket/a/b", "/gcs/bucket/a/b"),
        ("s3://bucket/a", "/s3/bucket/a"),
        ("minio://bucket", "/minio/bucket"),
        ("/tmp/file", "/tmp/file"),
        ("https://host/file", "https://host/file"),
    ],
)
@pytest.mark.parametrize("root", ["", "/somewhere"])
def test_there_and_back(monkeypatch, root, address, path):
    monkeypatch.setenv(addresses.ROOT, root)
    local = addresses.to_local(address)
    assert local == (path if path == address else root + path)
    assert addresses.to_remote(local) == address


def test_strings_in_metadata():
    value = {"a": "/minio/bucket/x", "b": ["/tmp/copies/model/1", 3.0, None], "c": "/tmp/copies"}
    assert addresses.in_strings(value, {"/tmp/copies/model": "gs://old/model"}) == {
        "a": "minio://bucket/x",
        "b": ["gs://old/model/1", 3.0, None],
        "c": "/tmp/copies",
    }
