"""Beam's fixed costs, reduced where its pipelines run in one process.

They are most of the time of StatisticsGen and Transform on a small data set. Results stay the same.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import functools
import gettext
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stagecraft.pipeline.beam.in_process import run_in_one_process

_PICKLERS = ("apache_beam.internal.dill_pickler", "apache_beam.internal.cloudpickle_pickler")

_SIGNATURE = "get_function_args_defaults"


@contextlib.contextmanager
def reduced(arguments: Sequence[str]) -> Iterator[None]:
    """Reduces the costs in the block, unless Beam's arguments name workers in other processes."""
    with contextlib.ExitStack() as stack:
        if run_in_one_process(arguments):
            import apache_beam.internal.pickler
            import apache_beam.io.tfrecordio  # noqa: F401
            from apache_beam.transforms import core

            for name in _PICKLERS:
                stack.enter_context(_replaced(sys.modules.get(name), "bz2", _Plain))
            stack.enter_context(_unchanged_tracing())
            arguments_of = getattr(core, _SIGNATURE, None)
            stack.enter_context(_replaced(core, _SIGNATURE, _once_per_function(arguments_of)))
            # Each object of Beam's options makes an argument parser, and each parser looks for
            # files with translations of its headings.
            stack.enter_context(_replaced(argparse, "_", functools.cache(gettext.gettext)))
            stack.enter_context(_checksums_in_c())
        yield


class _Plain:
    """Takes the place of the module ``bz2`` in Beam's picklers, and does not compress.

    They compress each function as small as possible, because a service has limits on the size of a
    pipeline. An evaluation has 900 pickles of a kilobyte. For each, bz2 clears megabytes, and waits
    for Python's lock after it.
    """

    @staticmethod
    def compress(data: bytes, compresslevel: int = 9) -> bytes:
        """The data; ``compresslevel`` has no effect."""
        del compresslevel
        return data

    @staticmethod
    def decompress(data: bytes) -> bytes:
        """The data; that of ``bz2``, which was used before, is decompressed."""
        # No pickle has this beginning: protocols of 2 and more begin with b"\x80".
        return bz2.decompress(data) if data.startswith(b"BZh") else data


@contextlib.contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Replaces an attribute in the block; nothing, if there is none in this version."""
    if not hasattr(owner, name):
        yield
        return
    stock = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, stock)


def _once_per_function(arguments_of: Any) -> Callable[[Any], tuple[list[str], list[Any]]]:
    """Beam's function for names and defaults of arguments, which inspects each method once.

    Beam inspects all methods of each DoFn five times: when it is made, checked and started.
    """
    found: dict[Any, tuple[list[str], list[Any]]] = {}

    def arguments(function: Any) -> tuple[list[str], list[Any]]:
        if not isinstance(function, types.MethodType):
            return arguments_of(function)
        key = function.__func__
        if key not in found:
            found[key] = arguments_of(function)
        names, defaults = found[key]
        return [*names], [*defaults]

    return arguments


@contextlib.contextmanager
def _unchanged_tracing() -> Iterator[None]:
    """Lets dill set the level of its log only when it changes.

    Beam turns dill's log of objects off after each pickle, on or not. This clears the caches of all
    loggers of the process: a tenth of the time of StatisticsGen.
    """
    dill = sys.modules.get("dill._dill")
    stock = getattr(dill, "_trace", None)
    is_on = False

    def trace(value: bool) -> None:
        nonlocal is_on
        if stock is not None and value != is_on:
            stock(value)
        is_on = value

    with _replaced(dill, "_trace", trace):
        yield


def _checksums_in_c() -> contextlib.AbstractContextManager[None]:
    """Beam's checksums of TFRecords from the package google-crc32c, which Beam depends on.

    Without python-snappy, Beam would use crcmod, which takes 40 times as long.
    """
    try:
        import google_crc32c
    except ImportError:
        return contextlib.nullcontext()
    if google_crc32c.implementation != "c":
        return contextlib.nullcontext()
    tfrecordio = sys.modules["apache_beam.io.tfrecordio"]
    default = getattr(tfrecordio, "_default_crc32c_fn", None)
    return _replaced(default, "fn", google_crc32c.value)
