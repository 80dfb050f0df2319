"""Decodes and checks the records of one file of an archive, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from stagecraft.common.errors import UserError, said
from stagecraft.components.example_gen.archives import unpickle
from stagecraft.components.example_gen.archives.layouts import PLANES, Label, Layout

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
        batch = unpickle.load(stream)
    except (EOFError, OSError):
        raise  # an error of the archive, not of the pickle
    except unpickle.ForbiddenNameError as error:
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
