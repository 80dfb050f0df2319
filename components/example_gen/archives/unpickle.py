"""Reads the pickled batches of the CIFAR archives, and nothing else.

Python's unpickler calls any function that the file names. This one knows four names, each replaced
by a safe substitute. The substitutes check shape, type and bytes of an array, and then call
:func:`numpy.frombuffer`. NumPy's own reconstruction is unsafe: with a crafted dtype state, it
follows pointers from the file.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import IO, Any, NoReturn

import numpy as np


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
