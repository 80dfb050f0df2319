"""Beam reads and writes minio:// addresses."""

import gzip
import pathlib

import apache_beam as beam
import pytest
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from stagecraft.components.object_store import beam_filesystem
from stagecraft.components.object_store.filesystem import ObjectStore

assert beam_filesystem  # importing it is what tells Beam
RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@pytest.fixture(params=["server", "folder"])
def root(request: pytest.FixtureRequest) -> str:
    """An address on an S3 server, and in a folder that stands for one."""
    if request.param == "server":
        return f"minio://{request.getfixturevalue('bucket')}/data"
    assert isinstance(request.getfixturevalue("folder_store"), pathlib.Path)
    return "minio://bucket/data"


def _write(address: str, content: bytes) -> None:
    with ObjectStore.open(address, "wb") as file:
        file.write(content)


def test_a_pipeline_reads_and_writes_it(root):
    _write(f"{root}/in/a.txt", b"one\ntwo\n")
    _write(f"{root}/in/b.txt.gz", gzip.compress(b"three\n"))
    _write(f"{root}/other.txt", b"four\n")
    with beam.Pipeline(RUNNER) as pipeline:
        (
            pipeline
            | beam.io.ReadFromText(f"{root}/in/*")
            | beam.Map(str.upper)
            | beam.io.WriteToText(f"{root}/out/lines", num_shards=1, shard_name_template="")
        )
    with ObjectStore.open(f"{root}/out/lines", "rb") as file:
        assert sorted(file.read().split()) == [b"ONE", b"THREE", b"TWO"]


def test_compressed_files_are_written(root):
    """As Transform's cache is."""
    with FileSystems.create(f"{root}/out.gz") as file:
        file.write(b"four\n")
    with ObjectStore.open(f"{root}/out.gz", "rb") as file:
        assert gzip.decompress(file.read()) == b"four\n"


def test_what_is_there(root):
    _write(f"{root}/in/a.txt", b"one\n")
    [found] = FileSystems.match([f"{root}/in/*.txt"])
    [metadata] = found.metadata_list
    assert (metadata.path, metadata.size_in_bytes) == (f"{root}/in/a.txt", 4)
    assert metadata.last_updated_in_seconds > 1.7e9
    assert FileSystems.exists(f"{root}/in/a.txt") and not FileSystems.exists(f"{root}/in/b.txt")
    FileSystems.rename([f"{root}/in/a.txt"], [f"{root}/in/b.txt"])
    FileSystems.copy([f"{root}/in/b.txt"], [f"{root}/in/c.txt"])
    FileSystems.delete([f"{root}/in/b.txt"])
    [left] = FileSystems.match([f"{root}/in/*"])
    assert [metadata.path for metadata in left.metadata_list] == [f"{root}/in/c.txt"]
    with pytest.raises(BeamIOError, match="b.txt"):
        FileSystems.last_updated(f"{root}/in/b.txt")
