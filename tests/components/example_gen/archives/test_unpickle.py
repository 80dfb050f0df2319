"""The unpickler reads every way in which the batches were ever written, and nothing more."""

import io
import os
import pickle
import struct
from typing import Any

import numpy as np
import pytest

from stagecraft.components.example_gen.archives import records

PLANES = np.arange(4 * 3072, dtype=np.uint32).astype(np.uint8).reshape(4, 3072)
BATCH = {"labels": [6, 9, 9, 4], "data": PLANES, "filenames": ["a", "b", "c", "d"]}


def load(data: bytes) -> dict[str, Any]:
    return records.load(io.BytesIO(data))


def python2(labels: list[int], planes: np.ndarray) -> bytes:
    """What Python 2's cPickle wrote for the published archives, opcode by opcode."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    raw = planes.tobytes()
    rows, columns = planes.shape
    array = b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\nq\x05",
            *(b"cnumpy\nndarray\nq\x06K\x00\x85", text(b"b"), b"\x87Rq\x07"),
            *(b"(K\x01K", bytes([rows]), b"M", struct.pack("<H", columns), b"\x86"),
            *(b"cnumpy\ndtype\nq\x08", text(b"u1"), b"K\x00K\x01\x87Rq\x09(K\x03", text(b"|")),
            b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            *(b"T", struct.pack("<I", len(raw)), raw, b"tb"),
        ]
    )
    return b"".join(
        [
            b"\x80\x02}q\x01(",
            *(text(b"batch_label"), text(b"training batch 1 of 5")),
            *(text(b"labels"), b"](", *(b"K" + bytes([label]) for label in labels), b"e"),
            *(text(b"data"), array),
            *(text(b"filenames"), b"](", text(b"a.png") * len(labels), b"e"),
            b"u.",
        ]
    )


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("order", ["C", "F"])
def test_reads_what_python_3_writes(protocol, order):
    batch = load(pickle.dumps(BATCH | {"data": np.array(PLANES, order=order)}, protocol))
    assert batch["labels"] == BATCH["labels"]
    assert batch["data"].dtype == np.uint8
    np.testing.assert_array_equal(batch["data"], PLANES)


def test_reads_what_python_2_wrote():
    batch = load(python2([6, 9, 9, 4], PLANES))
    assert batch["labels"] == [6, 9, 9, 4]
    np.testing.assert_array_equal(batch["data"], PLANES)


def test_reads_numpy_2s_name_for_it():
    data = pickle.dumps(BATCH, 2)
    old, new = b"numpy.core.multiarray", b"numpy._core.multiarray"
    if new not in data:
        data = data.replace(old, new)
    np.testing.assert_array_equal(load(data)["data"], PLANES)


class Call:
    """Pickled as the call of a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call


@pytest.mark.parametrize("protocol", range(5))
def test_runs_no_code(protocol, tmp_path):
    trace = tmp_path / "trace"
    attack = pickle.dumps(BATCH | {"x": Call(os.system, f"touch {trace}")}, protocol)
    with pytest.raises(records.ForbiddenNameError, match=r"posix\.system"):
        load(attack)
    assert not trace.exists()


@pytest.mark.parametrize(
    "attack",
    [
        b"cbuiltins\neval\n(V1\ntR.",
        b"(V1\nibuiltins\neval\n.",
        b"cnumpy\nndarray.__class__\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x11dtype.__globals__\x93.",
        b"cstagecraft.components.example_gen.archives.unpickle\n_Unpickler\n.",
    ],
)
def test_knows_few_names(attack):
    with pytest.raises(records.ForbiddenNameError):
        load(attack)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (b"cnumpy\ndtype\n(Vu1\nI0\nI1\ntR.", "dictionary"),
        (b"cnumpy\nndarray\n(tR.", "only refer to"),
        (b"cnumpy\ndtype\n(VO8\nI0\nI1\ntR.", "uint8"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "expected bytes"),
        (b"cnumpy\ndtype\n}Vx\nI1\nsb.", "change a function"),
        (b"cnumpy\ndtype\nN}Vx\nI1\ns\x86b.", "change a function"),
        (b"P1\n.", "persistent"),
    ],
)
def test_builds_nothing_else(attack, message):
    with pytest.raises(pickle.UnpicklingError, match=message):
        load(attack)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (PLANES.astype(np.int16), "uint8"),
        (np.array([[], None], object), "uint8"),
        (PLANES.view(np.int8), "uint8"),
    ],
)
def test_arrays_hold_unsigned_bytes(change, message):
    with pytest.raises(pickle.UnpicklingError, match=message):
        load(pickle.dumps({"data": change}, 2))


def test_an_arrays_shape_fits_its_bytes():
    with pytest.raises(pickle.UnpicklingError, match=r"shape \(4, 3073\)"):
        load(python2([1], PLANES).replace(struct.pack("<H", 3072), struct.pack("<H", 3073)))


def test_a_truncated_pickle_ends_early():
    whole = python2([6, 9, 9, 4], PLANES)
    for length in (0, 1, 10, 100, 5000, len(whole) - 1):
        with pytest.raises((EOFError, pickle.UnpicklingError)):
            load(whole[:length])
