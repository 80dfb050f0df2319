"""Reads the records of one file of a CIFAR archive, binary or pickled.

Python's unpickler calls any function that the file names. This one knows four names, each replaced
by a safe substitute. The substitutes check shape, type and bytes of an array, and then call
:func:`numpy.frombuffer`. NumPy's own reconstruction is unsafe: with a crafted dtype state, it
follows pointers from the file.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from stagecraft.common.errors import UserError, said
from stagecraft.components.example_gen.archives.layouts import PLANES, Label, Layout


class ForbiddenNameError(pickle.UnpicklingError):
    """The pickle refers to a name that no CIFAR batch needs."""


def load(stream: IO[bytes]) -> dict[str, Any]:
    """Reads one pickled dictionary, written by Python 2 or 3, pickle protocols 0 to 4.

    Returns:
      Its values under text keys; arrays as uint8 :class:`numpy.ndarray`, read-only.

    Raises:
      ForbiddenNameError: it names a class or function that no CIFAR batch needs.
      Exception: any other error of Python's unpickler; the pickle is damaged.
    """
    batch = _Unpickler(stream, encoding="bytes").load()
    if type(batch) is not dict:
        raise pickle.UnpicklingError(f"expected a dictionary, found {type(batch).__name__}")
    return {
        key.decode("ascii") if isinstance(key, bytes) else str(key): (
            value.array() if isinstance(value, _Array) else value
        )
        for key, value in batch.items()
    }


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise ForbiddenNameError(f"{module}.{name}") from None


class _Callable:
    """The substitute of a function; the pickle can call it but not change it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, state: Any) -> NoReturn:
        raise pickle.UnpicklingError("the pickle tries to change a function")


class _Dtype:
    """The substitute of numpy.dtype; supports only unsigned bytes."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """Ignores byte order and the like, which bytes do not have."""


def _dtype(code: Any, *_: Any) -> _Dtype:
    if code not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"expected pixels of type uint8 ('u1'), found {code!r}")
    return _Dtype()


class _Array:
    """The substitute of numpy.ndarray."""

    __slots__ = ("_fortran", "_raw", "_shape")

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, fortran, raw = state
        if not (
            type(shape) is tuple
            and all(type(length) is int and length >= 0 for length in shape)
            and type(dtype) is _Dtype
            and isinstance(raw, (bytes, bytearray))
        ):
            raise pickle.UnpicklingError("expected an array, found something else")
        if math.prod(shape) != len(raw):
            raise pickle.UnpicklingError(f"an array of shape {shape} has {len(raw):,} bytes")
        self._shape, self._fortran, self._raw = shape, bool(fortran), raw

    def array(self) -> np.ndarray:
        if not hasattr(self, "_raw"):
            raise pickle.UnpicklingError("an array without contents")
        flat = np.frombuffer(self._raw, np.uint8)
        return flat.reshape(self._shape, order="F" if self._fortran else "C")


def _never(*_: Any) -> NoReturn:
    raise pickle.UnpicklingError("the pickle calls a name that batches only refer to")


def _encode(text: Any, encoding: Any) -> bytes:
    """Python 3 writes bytes this way in protocols 0 to 2."""
    if type(text) is not str or encoding != "latin1":
        raise pickle.UnpicklingError("expected bytes, found something else")
    return text.encode("latin1")


_NAMES: dict[tuple[str, str], _Callable] = {
    ("numpy.core.multiarray", "_reconstruct"): _Callable(lambda *_: _Array()),
    ("numpy._core.multiarray", "_reconstruct"): _Callable(lambda *_: _Array()),  # NumPy 2
    ("numpy", "ndarray"): _Callable(_never),
    ("numpy", "dtype"): _Callable(_dtype),
    ("_codecs", "encode"): _Callable(_encode),
}


_DAMAGED = "The file is damaged or has another format; download the archive again."
BLOCK = 1024  # records per block: 3 MB
Labels = npt.NDArray[np.uint8]  # ``[n]``
Planes = npt.NDArray[np.uint8]  # ``[n, 3072]``: each image's red, green and blue planes, row by row


def read(
    stream: IO[bytes], size: int, layout: Layout, dataset: str, where: str
) -> Iterator[tuple[Labels, Planes]]:
    """Yields all records of a file, in its order; ``dataset`` chooses among their labels."""
    if layout.pickled:
        yield from _read_pickled(stream, layout, dataset, where)
    else:
        yield from _read_binary(stream, size, layout, dataset, where)


def _read_binary(
    stream: IO[bytes], size: int, layout: Layout, dataset: str, where: str
) -> Iterator[tuple[Labels, Planes]]:
    length = layout.record_bytes
    if size == 0 or size % length:
        raise UserError(
            f"{where}: {size:,} bytes are not a whole number of {layout.name} records of "
            f"{length:,} bytes ({size // length:,} records and {size % length:,} bytes). "
            f"{_DAMAGED}",
            file=where,
            value=size,
        )
    column = layout.datasets.index(dataset)
    for first in range(0, size // length, BLOCK):
        count = min(BLOCK, size // length - first)
        data = stream.read(count * length)
        if len(data) < count * length:
            raise EOFError("unexpected end of file")
        rows = np.frombuffer(data, np.uint8).reshape(count, length)
        for position, label in enumerate(layout.labels):
            for bad in np.flatnonzero(rows[:, position] >= label.num_classes).tolist():
                raise _bad_label(int(rows[bad, position]), label, first + bad, where)
        yield rows[:, column], rows[:, len(layout.labels) :]


def _read_pickled(
    stream: IO[bytes], layout: Layout, dataset: str, where: str
) -> Iterator[tuple[Labels, Planes]]:
    batch = _unpickle(stream, layout, where)
    planes = batch.get("data")
    if not isinstance(planes, np.ndarray) or planes.ndim != 2 or planes.shape[1] != PLANES:
        found = f"shape {planes.shape}" if isinstance(planes, np.ndarray) else _kind(planes)
        raise UserError(
            f"{where}: expected 'data' to be an array of images, uint8 [n, {PLANES}]; found "
            f"{found}. {_DAMAGED}",
            file=where,
            record="data",
        )
    if not len(planes):
        raise UserError(f"{where}: has no record. {_DAMAGED}", file=where)
    labels = {
        label.dataset: _labels(batch.get(label.key), label, len(planes), where)
        for label in layout.labels
    }
    for first in range(0, len(planes), BLOCK):
        block = slice(first, first + BLOCK)
        yield labels[dataset][block], planes[block]


def _unpickle(stream: IO[bytes], layout: Layout, where: str) -> dict[str, Any]:
    try:
        batch = load(stream)
    except (EOFError, OSError):
        raise  # an error of the archive, not of the pickle
    except ForbiddenNameError as error:
        raise UserError(
            f"{where}: the pickle refers to {error}, which no {layout.family} batch needs and "
            "which could run arbitrary code. Do not use this file; download the archive from a "
            "trusted source.",
            file=where,
            value=str(error),
        ) from None
    except Exception as error:  # on a damaged pickle, Python's unpickler raises almost anything
        raise UserError(
            f"{where}: not a pickled {layout.family} batch ({said(error)}). {_DAMAGED}", file=where
        ) from None
    if stream.read(1):
        raise UserError(f"{where}: has bytes after the pickle's end. {_DAMAGED}", file=where)
    return batch


def _labels(values: Any, label: Label, expected: int, where: str) -> Labels:
    if type(values) is not list or len(values) != expected:
        found = f"{len(values):,}" if type(values) is list else _kind(values)
        raise UserError(
            f"{where}: expected {label.key!r} to be a list of {expected:,} integers, one for each "
            f"image; found {found}. {_DAMAGED}",
            file=where,
            record=label.key,
        )
    for record, value in enumerate(values):
        if type(value) is not int or not 0 <= value < label.num_classes:
            raise _bad_label(value, label, record, where)
    return np.array(values, np.uint8)


def _bad_label(value: Any, label: Label, record: int, where: str) -> UserError:
    shown = value if type(value) is int else _kind(value)
    return UserError(
        f"{where}, record {record} (from 0): {label.key.removesuffix('s').replace('_', ' ')} "
        f"{shown}, but {label.dataset} has labels from 0 to {label.num_classes - 1}. The file is "
        "damaged or another data set; download the archive again, or change the setting dataset.",
        setting="dataset",
        file=where,
        record=str(record),
        value=value,
    )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
