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
import zlib
from collections.abc import Iterator, Sequence

from stagecraft.pipeline.beam.in_process import run_in_one_process

_PICKLERS = ("apache_beam.internal.dill_pickler", "apache_beam.internal.cloudpickle_pickler")


@contextlib.contextmanager
def reduced(arguments: Sequence[str]) -> Iterator[None]:
    """Reduces the costs in the block, unless Beam's arguments name workers in other processes."""
    with contextlib.ExitStack() as stack:
        if run_in_one_process(arguments):
            import apache_beam.internal.pickler
            import apache_beam.io.tfrecordio  # noqa: F401

            for name in _PICKLERS:
                stack.enter_context(_replaced(sys.modules.get(name), "bz2", _Zlib))
            # Each object of Beam's options makes an argument parser, and each parser looks for
            # files with translations of its headings.
            stack.enter_context(_replaced(argparse, "_", functools.cache(gettext.gettext)))
            stack.enter_context(_checksums_in_c())
        yield


class _Zlib:
    """Takes the place of the module ``bz2`` in Beam's picklers.

    They compress each function as small as possible, because a service has limits on the size of a
    pipeline. bz2 allocates and clears megabytes for each.
    """

    @staticmethod
    def compress(data: bytes, compresslevel: int = 9) -> bytes:
        """Compresses fast; ``compresslevel`` has no effect."""
        del compresslevel
        return zlib.compress(data, 1)

    @staticmethod
    def decompress(data: bytes) -> bytes:
        """Decompresses the output of :meth:`compress`, or of ``bz2``, which was used before."""
        return bz2.decompress(data) if data.startswith(b"BZh") else zlib.decompress(data)


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
