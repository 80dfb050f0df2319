"""Addresses, and the launcher's copies of what is there."""

from __future__ import annotations

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
def test_there_and_back(
    monkeypatch: pytest.MonkeyPatch, root: str, address: str, path: str
) -> None:
    monkeypatch.setenv(addresses.ROOT, root)
    local = addresses.to_local(address)
    assert local == (path if path == address else root + path)
    assert addresses.to_remote(local) == address


@pytest.mark.parametrize(
    ("output", "folder"),
    [
        ("minio://bucket/root/name/run/Train/salt/model", "minio://bucket/root/name"),
        ("gs://bucket/name/run/Train/model", "gs://bucket/name"),  # older backends: no salt
        ("s3://b/Train/name/run/Train/salt/Train", "s3://b/Train/name"),
    ],
)
def test_what_all_runs_of_a_pipeline_know(output: str, folder: str) -> None:
    assert addresses.pipeline_folder(output, "Train") == folder


def test_not_an_output_of_the_step() -> None:
    with pytest.raises(ValueError, match="not an output of the step Train"):
        addresses.pipeline_folder("gs://bucket/name/run/Transform/salt/graph", "Train")


def test_strings_in_metadata() -> None:
    value = {"a": "/minio/bucket/x", "b": ["/tmp/copies/model/1", 3.0, None], "c": "/tmp/copies"}
    assert addresses.in_strings(value, {"/tmp/copies/model": "gs://old/model"}) == {
        "a": "minio://bucket/x",
        "b": ["gs://old/model/1", 3.0, None],
        "c": "/tmp/copies",
    }
