"""The records of one file of an archive: decoded and checked, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from stagecraft.components.example_gen.archives import unpickle
from stagecraft.components.example_gen.archives.layouts import PLANES, Label, Layout
from stagecraft.schemas.errors import UserError
from stagecraft.schemas.foreign_errors import said

BLOCK = 1024
"""Records handled at a time: 3 MB, whatever the size of the data set."""


Labels = npt.NDArray[np.uint8]
"""``[n]``."""

Planes = npt.NDArray[np.uint8]
"""``[n, 3072]``: each picture's red, green and blue planes, row by row."""


def read(
    stream: IO[bytes], size: int, layout: Layout, dataset: str, where: str
) -> Iterator[tuple[Labels, Planes]]:
    """Yields all records of a file, in its order.

    Args:
      stream: the file.
      size: its bytes.
      layout: how it is written.
      dataset: key of ``features.DATASETS``; chooses among the labels of a record.
      where: what to call the file in errors.

    Raises:
      UserError: a record or the file is not as the layout says.
      EOFError: the file ends early.
    """
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
            f"{where}: {size:,} bytes are no whole number of records of {length:,} bytes "
            f"({size // length:,} records and {size % length:,} bytes), as {layout.name} has "
            "them. The file is damaged or of another kind; get the archive again."
        )
    column = layout.datasets.index(dataset)
    for first in range(0, size // length, BLOCK):
        count = min(BLOCK, size // length - first)
        data = stream.read(count * length)
        if len(data) < count * length:
            raise EOFError("unexpected end of file")
        rows = np.frombuffer(data, np.uint8).reshape(count, length)
        for position, label in enumerate(layout.labels):
            _check_range(rows[:, position], label, first, where)
        yield rows[:, column], rows[:, len(layout.labels) :]


def _read_pickled(
    stream: IO[bytes], layout: Layout, dataset: str, where: str
) -> Iterator[tuple[Labels, Planes]]:
    batch = _unpickle(stream, layout, where)
    planes = batch.get("data")
    if not isinstance(planes, np.ndarray) or planes.ndim != 2 or planes.shape[1] != PLANES:
        found = f"shape {planes.shape}" if isinstance(planes, np.ndarray) else _kind(planes)
        raise UserError(
            f"{where}: 'data' should be an array of pictures, uint8 [n, {PLANES}], found {found}. "
            "The file is damaged or of another kind; get the archive again."
        )
    if not len(planes):
        raise UserError(f"{where}: holds no record; get the archive again.")
    labels = {
        label.dataset: _labels(batch.get(label.key), label, len(planes), where)
        for label in layout.labels
    }
    for first in range(0, len(planes), BLOCK):
        block = slice(first, first + BLOCK)
        yield labels[dataset][block], planes[block]


def _unpickle(stream: IO[bytes], layout: Layout, where: str) -> dict[str, Any]:
    try:
        batch = unpickle.load(stream)
    except (EOFError, OSError):
        raise  # the archive's trouble, not the pickle's
    except unpickle.ForbiddenNameError as error:
        raise UserError(
            f"{where}: refused, because its pickle asks for {error}, which no {layout.family} "
            "batch needs: unpickled the usual way, it could run any code. Don't use this file; "
            "get the archive again from a source you trust."
        ) from None
    except Exception as error:  # a damaged pickle leads Python's unpickler to almost anything
        raise UserError(
            f"{where}: not a pickled {layout.family} batch ({said(error)}). "
            "The file is damaged or of another kind; get the archive again."
        ) from None
    if stream.read(1):
        raise UserError(f"{where}: goes on after its pickle's end; get the archive again.")
    return batch


def _labels(values: Any, label: Label, expected: int, where: str) -> Labels:
    """Returns checked labels, uint8 ``[expected]``."""
    if type(values) is not list or len(values) != expected:
        found = f"{len(values):,}" if type(values) is list else _kind(values)
        raise UserError(
            f"{where}: {label.key!r} should be a list of {expected:,} numbers, one a picture, "
            f"found {found}. The file is damaged or of another kind; get the archive again."
        )
    for record, value in enumerate(values):
        if type(value) is not int or not 0 <= value < label.num_classes:
            raise _bad_label(value, label, record, where)
    return np.array(values, np.uint8)


def _check_range(labels: Labels, label: Label, first: int, where: str) -> None:
    bad = np.flatnonzero(labels >= label.num_classes)
    if len(bad):
        raise _bad_label(int(labels[bad[0]]), label, first + int(bad[0]), where)


def _bad_label(value: Any, label: Label, record: int, where: str) -> UserError:
    shown = value if type(value) is int else _kind(value)
    return UserError(
        f"{where}, record {record} (from 0): {label.key.removesuffix('s').replace('_', ' ')} "
        f"{shown}, but {label.dataset} has labels from 0 to {label.num_classes - 1}. The file is "
        "damaged or holds another data set; get the archive again or give the right dataset."
    )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
