"""Archives and folders in all four layouts; and all that may be wrong with them."""

import gzip
import io
import os
import pathlib
import pickle
import tarfile
import tracemalloc
from typing import Any

import numpy as np
import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.archives import archive, records


def read(source: str, dataset: str = "cifar10") -> tuple[np.ndarray, np.ndarray]:
    """Labels and planes in the data set's own order, train part first."""
    blocks = list(archive.read(source, dataset))
    blocks.sort(key=lambda block: (block.part == "test", block.batch))  # stable within a file
    labels = np.concatenate([block.labels for block in blocks])
    return labels, np.concatenate([block.planes for block in blocks])


def refused(source: str, dataset: str = "cifar10") -> str:
    """The message with which a source is refused; it always names the source."""
    with pytest.raises(UserError) as caught:
        read(source, dataset)
    assert source in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("layout", ["binary", "python"])
@pytest.mark.parametrize("form", ["pack", "unpack"])
def test_reads_cifar10(tiny, layout, form):
    labels, planes = read(getattr(tiny, form)(getattr(tiny, layout)()))
    np.testing.assert_array_equal(labels, tiny.labels)
    np.testing.assert_array_equal(planes, tiny.planes)


@pytest.mark.parametrize("layout", ["binary100", "python100"])
@pytest.mark.parametrize("form", ["pack", "unpack"])
@pytest.mark.parametrize("dataset", ["cifar100", "cifar100_coarse"])
def test_reads_either_label_of_cifar100(tiny100, layout, form, dataset):
    source = getattr(tiny100, form)(getattr(tiny100, layout)())
    labels, planes = read(source, dataset)
    expected = tiny100.labels if dataset == "cifar100" else tiny100.coarse
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(planes, tiny100.planes)


@pytest.mark.slow
def test_both_layouts_of_the_real_pictures_agree(cifar10_small):
    binary, python = (
        read(str(cifar10_small / f"cifar-10-{layout}.tar.gz")) for layout in ("binary", "python")
    )
    np.testing.assert_array_equal(binary[0], python[0])
    np.testing.assert_array_equal(binary[1], python[1])
    assert len(binary[0]) in (6_000, 60_000)  # a part of it, or all


def test_finds_the_folder_that_an_archive_unpacks_to(tiny):
    tiny.unpack(tiny.binary(), "data/cifar-10-batches-bin")
    labels, _ = read(str(tiny.folder / "data"))
    np.testing.assert_array_equal(labels, tiny.labels)


def test_ten_batches_are_in_the_order_of_their_numbers(tiny):
    tiny.labels[:] = np.arange(40) % 10
    whole = np.concatenate([tiny.labels[:, None], tiny.planes], axis=1)
    files = {f"data_batch_{k + 1}.bin": whole[3 * k : 3 * k + 3].tobytes() for k in range(10)}
    labels, _ = read(tiny.pack(files | {"test_batch.bin": whole[30:].tobytes()}))
    np.testing.assert_array_equal(labels, tiny.labels)


class Told(list[tuple[int, int]]):
    """What a reader reported: done and total."""

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))


def test_tells_how_far_it_is(tiny):
    for source in (tiny.pack(tiny.binary()), tiny.unpack(tiny.binary())):
        told = Told()
        list(archive.read(source, "cifar10", told))
        [total] = {total for _, total in told}
        assert 0 < told[0][0] <= told[-1][0] <= total


def test_memory_does_not_grow_with_the_data(tmp_path):
    def peak(records_: int) -> int:
        path = tmp_path / f"{records_}.tar.gz"
        batch = bytes(3073 * records_)
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for name in ("data_batch_1.bin", "test_batch.bin"):
                info = tarfile.TarInfo(name)
                info.size = len(batch)
                tar.addfile(info, io.BytesIO(batch))
        del batch
        tracemalloc.start()
        assert sum(len(b.labels) for b in archive.read(str(path), "cifar10")) == 2 * records_
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    one, four = peak(3 * records.BLOCK), peak(12 * records.BLOCK)
    assert four < one + 100_000  # less than 40 records of the 18,000 more


# What may be wrong: with records, with pickles, with archives.


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name not in names}


@pytest.mark.parametrize(
    ("layout", "place"),
    [
        ("binary", "cifar/data_batch_2.bin, record 7 (from 0): label 10"),
        ("python", "cifar/data_batch_2, record 7 (from 0): label 10"),
        ("binary100", "test.bin, record 2 (from 0): coarse label 20"),
        ("python100", "test, record 2 (from 0): coarse label 20"),
    ],
)
def test_a_label_out_of_range(tiny, tiny100, layout, place):
    tiny.labels[17], tiny100.coarse[32] = 10, 20
    of = tiny100 if "100" in layout else tiny
    message = refused(of.pack(getattr(of, layout)()), "cifar100" if of is tiny100 else "cifar10")
    assert place in message and ("0 to 9" in message or of is tiny100)


def test_other_files_than_expected(tiny, tiny100):
    binary, python = tiny.binary(), tiny.python()
    test = {"test_batch.bin": binary["test_batch.bin"]}
    for files, dataset, words in (
        ({}, "cifar10", "no CIFAR batch"),
        ({"readme.html": b"x"}, "cifar10", "no CIFAR batch"),
        (without(binary, "test_batch.bin"), "cifar10", "no test batch"),
        (without(binary, "data_batch_1.bin"), "cifar10", "no training batch 1"),
        (test, "cifar10", "no training batch,"),
        (tiny100.binary100(), "cifar10", "is CIFAR-100"),
        (tiny100.binary100(), "cifar10", "dataset to cifar100"),
        (python, "cifar100", "is CIFAR-10 "),
        (binary | python, "cifar10", "single layout"),
        (binary | {f"again/{name}": data for name, data in test.items()}, "cifar10", "same batch"),
        (python | {"test_batch": python["test_batch"] + b"more"}, "cifar10", "pickle's end"),
    ):
        assert words in refused(tiny.pack(files), dataset)
    assert "no CIFAR batch" in refused(tiny.unpack({}))


@pytest.mark.parametrize("length", [0, 3072, 3073 * 5 + 1])
def test_a_batch_of_no_whole_records(tiny, length):
    message = refused(tiny.pack(tiny.binary() | {"data_batch_2.bin": bytes(length)}))
    for words in ("data_batch_2.bin", f"{length:,} bytes", "3,073"):
        assert words in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda b: without(b, "data"), "'data' to be"),
        (lambda b: without(b, "labels"), "'labels' to be a list of 10"),
        (lambda b: b | {"data": b["data"][:, :3000]}, r"shape (10, 3000)"),
        (lambda b: b | {"data": b["data"][:0], "labels": []}, "no record"),
        (lambda b: b | {"data": b["data"].tolist()}, "type list"),
        (lambda b: b | {"data": b["data"].astype(float)}, "uint8"),
        (lambda b: b | {"labels": b["labels"][1:]}, "found 9"),
        (lambda b: b | {"labels": [1.0] * 10}, "record 0 (from 0): label a value of type float"),
        (lambda b: b | {"labels": [0, -1] * 5}, "record 1 (from 0): label -1"),
        (lambda b: b | {"labels": [True] * 10}, "type bool"),
        (lambda b: [b], "expected a dictionary"),
    ],
)
def test_a_pickle_of_another_kind(tiny, change, expected):
    batch = {"data": tiny.planes[:10], "labels": tiny.labels[:10].tolist()}
    message = refused(tiny.pack(tiny.python() | {"data_batch_1": pickle.dumps(change(batch), 4)}))
    assert "data_batch_1" in message
    assert expected in message


def test_a_pickle_that_would_run_code(tiny, tmp_path):
    class Attack:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'trace'}",)

    for form in (tiny.pack, tiny.unpack):
        message = refused(form(tiny.python() | {"data_batch_1": pickle.dumps(Attack())}))
        assert "posix.system" in message
        assert "data_batch_1" in message
    assert not (tmp_path / "trace").exists()


def test_noise_in_place_of_a_pickle(tiny):
    random = np.random.default_rng(1)
    for _ in range(50):
        folder = tiny.folder / random.bytes(8).hex()
        noise = random.bytes(100)
        refused(tiny.unpack(tiny.python() | {"data_batch_1": noise}, folder.name))


def test_a_truncated_archive(tiny):
    whole = pathlib.Path(tiny.pack(tiny.binary())).read_bytes()
    source = tiny.folder / "cut.tar.gz"
    for share in (0.001, 0.2, 0.5, 0.9, 0.999):
        source.write_bytes(whole[: int(len(whole) * share)])
        assert "truncated" in refused(str(source))


def test_a_truncated_archive_compressed_again(tiny):
    whole = gzip.decompress(pathlib.Path(tiny.pack(tiny.binary())).read_bytes())
    last = whole.index(b"cifar/data_batch_1.bin")  # the last member: ends at its header, or in it
    source = tiny.folder / "cut.tar.gz"
    for length in (last - 512, last, last + 300, last + 512, last + 5_000):
        source.write_bytes(gzip.compress(whole[:length], 1))
        assert "truncated" in refused(str(source))


def test_a_changed_byte(tiny):
    """Only gzip's checksum, at the very end, tells that a pixel differs."""
    path = pathlib.Path(tiny.pack(tiny.binary()))
    whole = bytearray(path.read_bytes())
    whole[-6] ^= 1
    path.write_bytes(whole)
    assert "damaged" in refused(str(path))


# Without the time of day: workers of pytest-xdist have to collect tests of the same names.
@pytest.mark.parametrize(
    "content", [b"", b"no archive", gzip.compress(b"no tar", mtime=0), bytes(1000)]
)
def test_no_archive(tmp_path, content):
    source = tmp_path / "data.tar.gz"
    source.write_bytes(content)
    refused(str(source))


def test_a_folder_with_archives_in_it(tiny):
    tiny.pack(tiny.binary(), "cifar-10-binary.tar.gz")
    assert f"{tiny.folder}/cifar-10-binary.tar.gz" in refused(str(tiny.folder))


def test_folders_named_like_batches(tiny):
    (tiny.folder / "pictures/train").mkdir(parents=True)
    (tiny.folder / "pictures/test").mkdir()
    assert "no CIFAR batch" in refused(str(tiny.folder / "pictures"), "cifar100")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "cifar/../../x", "..", "cifar/.."])
def test_a_member_that_leaves_the_folder(tiny, name):
    message = refused(_with_member(tiny, tarfile.TarInfo(name)))
    assert repr(name) in message
    assert "outside its folder" in message


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (tarfile.SYMTYPE, "a link"),
        (tarfile.LNKTYPE, "a link"),
        (tarfile.CHRTYPE, "a device or a pipe"),
        (tarfile.FIFOTYPE, "a device or a pipe"),
    ],
)
def test_links_and_devices(tiny, kind, called):
    info = tarfile.TarInfo("cifar/data_batch_3.bin")
    info.type, info.linkname = kind, "/etc/passwd"
    message = refused(_with_member(tiny, info))
    assert "data_batch_3.bin" in message
    assert called in message


def _with_member(tiny: Any, info: tarfile.TarInfo) -> str:
    path = tiny.folder / "attack.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(info)
        for name, data in tiny.binary().items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)
