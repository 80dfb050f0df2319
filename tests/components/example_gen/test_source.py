"""Sources and their fingerprints: the same exactly when the content is."""

import pathlib
import shutil

import pytest

from stagecraft.common.errors import UserError
from stagecraft.common.secrets import SecretInAddress
from stagecraft.components.example_gen.archives import download
from stagecraft.components.example_gen.source import Source, resolve

PROPERTIES = {
    "source": "sample",
    "dataset": "cifar10",
    "cache_dir": "/nowhere",
    "sample_train": 100,
    "sample_test": 20,
}


def at(path: object) -> Source:
    return resolve(PROPERTIES | {"source": str(path)})


def test_the_sample_needs_no_files():
    source = resolve(PROPERTIES)
    assert sum(len(block.labels) for block in source.blocks(lambda done, total: None)) == 120
    larger = resolve(PROPERTIES | {"sample_train": 101})
    assert source.fingerprint() == resolve(PROPERTIES).fingerprint() != larger.fingerprint()


def test_numbers_may_come_as_doubles():
    """As Kubeflow hands them over."""
    doubles = resolve(PROPERTIES | {"sample_train": 100.0, "sample_test": 20.0})
    assert doubles.fingerprint() == resolve(PROPERTIES).fingerprint()


def test_an_archives_fingerprint_is_its_content(tiny):
    first = pathlib.Path(tiny.pack(tiny.binary()))
    copied = shutil.copy(first, tiny.folder / "copied.tar.gz")
    fingerprint = at(first).fingerprint()
    assert at(copied).fingerprint() == fingerprint
    first.write_bytes(first.read_bytes()[:-1])
    assert at(first).fingerprint() != fingerprint


def test_a_folders_fingerprint_is_its_batches(tiny):
    folder = pathlib.Path(tiny.unpack(tiny.binary()))
    fingerprint = at(folder).fingerprint()
    shutil.copytree(folder, tiny.folder / "copied")
    (tiny.folder / "copied" / "notes.txt").write_text("not a batch")
    assert at(tiny.folder / "copied").fingerprint() == fingerprint
    (folder / "data_batch_2.bin").rename(folder / "data_batch_3.bin")
    renamed = at(folder).fingerprint()
    assert renamed != fingerprint
    with open(folder / "test_batch.bin", "r+b") as file:
        file.write(b"\x01")
    assert at(folder).fingerprint() not in (fingerprint, renamed)


def test_download_is_fetched_into_the_cache(tiny, monkeypatch):
    asked: list[tuple[download.Published, str]] = []

    def fetch(published: download.Published, cache_dir: str) -> str:
        asked.append((published, cache_dir))
        return str(tiny.pack(tiny.binary()))

    monkeypatch.setattr(download, "fetch", fetch)
    assert len(list(at("download").blocks(lambda done, total: None))) == 3
    assert asked == [(download.PUBLISHED["cifar10"], "/nowhere")]


def test_what_is_not_there(tmp_path):
    with pytest.raises(UserError, match="'sample', or 'download'") as caught:
        at(tmp_path / "x")
    assert (caught.value.setting, caught.value.file) == ("source", str(tmp_path / "x"))


def test_home_is_expanded(tiny, monkeypatch):
    tiny.pack(tiny.binary())
    monkeypatch.setenv("HOME", str(tiny.folder))
    assert at("~/data.tar.gz").path == str(tiny.folder / "data.tar.gz")


def test_no_address_holds_credentials():
    for address in ("s3://key:c4n4ry@bucket/x", "gs://bucket/x?X-Goog-Signature=c4n4ry"):
        with pytest.raises(SecretInAddress) as refused:
            at(address)
        assert "c4n4ry" not in str(refused.value)
