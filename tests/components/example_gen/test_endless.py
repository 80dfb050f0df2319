"""Sources that take all memory or never end are refused, by name."""

import gzip
import io
import os
import pathlib
import re
import socket
import tarfile
import threading
import tracemalloc

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import source
from stagecraft.components.example_gen.archives import archive, files

PROPERTIES = {"dataset": "cifar10", "cache_dir": "", "sample_train": 0, "sample_test": 0}
LITTLE = 8 << 20  # bytes: a block of records, a few times


def refused(path: object) -> str:
    """The sentence that refuses a source when it is read, which takes little memory."""
    found = source.resolve(PROPERTIES | {"source": str(path)})
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as one:
            for _ in found.blocks(lambda done, total: None):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(path) in str(one.value)
    assert peak < LITTLE
    return str(one.value)


@pytest.mark.parametrize("number", ["20240101", "999999999999"])
@pytest.mark.parametrize("form", ["pack", "unpack"])
def test_a_number_in_a_name_is_no_size(tiny, form, number):
    contents = tiny.binary()
    contents[f"data_batch_{number}.bin"] = contents.pop("data_batch_2.bin")
    message = refused(getattr(tiny, form)(contents))
    assert "no training batch 2" in message and f"data_batch_{number}.bin" in message


def test_a_name_that_no_file_system_takes(tiny):
    contents = tiny.binary()
    contents["data_batch_" + "9" * 5_000 + ".bin"] = contents["test_batch.bin"]
    message = refused(tiny.pack(contents))
    assert "255 bytes" in message and len(message) < 400


def _pipe(path: pathlib.Path) -> None:
    os.mkfifo(path)


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _device(path: pathlib.Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL = [(_pipe, "named pipe"), (_socket, "socket"), (_device, "device")]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("make", "kind"), SPECIAL)
def test_what_is_no_file(tmp_path, make, kind):
    path = tmp_path / "data.tar.gz"
    make(path)
    with pytest.raises(UserError, match=f"{path}: is a {kind}"):
        source.resolve(PROPERTIES | {"source": str(path)}).fingerprint()
    assert f"is a {kind}" in refused(path)
    with pytest.raises(UserError, match=f"{path}: is a {kind}"):
        files.check_regular(str(path))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("make", "kind"), SPECIAL)
def test_what_is_no_file_in_a_folder(tiny, make, kind):
    folder = pathlib.Path(tiny.unpack(tiny.binary()))
    (folder / "data_batch_2.bin").unlink()
    make(folder / "data_batch_2.bin")
    with pytest.raises(UserError, match="reading"):
        source.resolve(PROPERTIES | {"source": str(folder)}).fingerprint()
    assert f"data_batch_2.bin: is a {kind}" in refused(folder)


def test_a_pipe_that_takes_a_files_place(tmp_path, monkeypatch):
    """Between the look at it and the opening: that does not wait for a writer either."""
    _pipe(tmp_path / "pipe")
    monkeypatch.setattr(files, "check_regular", lambda path: None)
    with pytest.raises(UserError, match="named pipe"):
        files.open_binary(str(tmp_path / "pipe"))


def test_a_link_to_a_file_is_a_file(tiny):
    (tiny.folder / "link").symlink_to(tiny.pack(tiny.binary()))
    assert sum(len(block.labels) for block in archive.read(str(tiny.folder / "link"), "cifar10"))


@pytest.mark.timeout(60)
def test_a_file_that_somebody_goes_on_writing(tmp_path, monkeypatch):
    path = tmp_path / "growing.tar.gz"
    path.write_bytes(b"x" * (3 << 20))
    before = source.resolve(PROPERTIES | {"source": str(path)}).fingerprint()
    size = files.size

    def then_grow(path: str) -> int:
        found = size(path)
        with open(path, "ab") as file:
            file.write(b"y" * (3 << 20))
        return found

    monkeypatch.setattr(files, "size", then_grow)
    assert source.resolve(PROPERTIES | {"source": str(path)}).fingerprint() == before


def _zeros(times: int) -> bytes:
    """A .gz of so many times 16 MiB, one member for each."""
    return gzip.compress(bytes(16 << 20)) * times


def _header(size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo("cifar/readme.html")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def test_an_archive_whose_end_never_comes(tiny, monkeypatch):
    """Beyond the last member are zeros only, and they are read for their checksum."""
    monkeypatch.setattr(archive, "FREE", 64 << 20)
    with open(tiny.pack(tiny.binary()), "rb") as file:
        whole = file.read()
    path = tiny.folder / "bomb.tar.gz"
    path.write_bytes(whole + _zeros(10))
    assert path.stat().st_size < len(whole) + (1 << 20)  # small, as bombs are
    assert "expands to" in refused(path)


def test_a_member_that_is_skipped_is_not_expanded(tiny):
    path = tiny.folder / "bomb.tar.gz"
    path.write_bytes(gzip.compress(_header(1 << 42)) + _zeros(1))
    assert "expands to" in refused(path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_header_that_would_fill_memory(tiny, kind):
    path = tiny.folder / "bomb.tar.gz"
    path.write_bytes(gzip.compress(_header(256 << 20, kind)) + _zeros(17))
    assert "131,072 bytes" in refused(path)


def test_headers_upon_headers(tiny):
    """tarfile calls itself for each, and its sparse maps are read block by block."""
    comment = b"30 comment=abcdefghijklmnopqr\n"
    extended = _header(len(comment), tarfile.XHDTYPE) + comment.ljust(512, b"\0")
    path = tiny.folder / "deep.tar.gz"
    path.write_bytes(gzip.compress(extended * 2_000 + _header(0) + bytes(1024)))
    assert "header is longer" in refused(path)


@pytest.mark.timeout(60)
def test_a_member_of_a_negative_size(tiny):
    """The next one would be where this one is."""
    header = bytearray(_header(0))
    header[124:136] = (-1024).to_bytes(12, "big", signed=True)  # GNU's base-256
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path = tiny.folder / "back.tar.gz"
    path.write_bytes(gzip.compress(_header(0) + bytes(header) + bytes(10_240)))
    said = refused(path)  # newer tarfiles end the archive before it
    assert str(path) in said
    assert re.search("trusted source|no CIFAR batch|truncated|damaged", said)


def test_a_file_with_holes(tiny):
    """A terabyte of pictures whose every byte is 0, in a header of 512 bytes."""
    info = tarfile.TarInfo("cifar/data_batch_1.bin")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = f"{(3073 * 10_000_000):011o}\0".encode()  # its size, with the holes
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path = tiny.folder / "holes.tar.gz"
    path.write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    said = refused(path)
    assert "data_batch_1.bin" in said and "sparse" in said


@pytest.mark.slow
def test_many_members_take_no_memory(tiny):
    path = tiny.folder / "many.tar.gz"
    path.write_bytes(gzip.compress(_header(0) * 20_000 + bytes(1024)))
    assert "no CIFAR batch" in refused(path)


def test_more_than_the_free_gigabyte_is_read_where_the_file_is_large(monkeypatch):
    monkeypatch.setattr(archive, "FREE", 0)
    packed = gzip.compress(os.urandom(10_000))
    assert len(archive.Expanding(io.BytesIO(packed), "x", len(packed)).read(10_000)) == 10_000


def test_a_folder_of_a_name_that_no_batch_has_is_left_alone(tiny):
    """A pipe that is no batch is none of our business."""
    folder = pathlib.Path(tiny.unpack(tiny.binary()))
    _pipe(folder / "notes")
    thread = threading.Thread(target=lambda: list(archive.read(str(folder), "cifar10")))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
