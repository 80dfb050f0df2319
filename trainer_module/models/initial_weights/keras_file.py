"""Reads weights by variable path from a Keras file: ``.keras`` or ``.weights.h5``.

Such a file does not contain the variables' paths. It has a group for each layer, named by the
layer's class and a number ("layers/conv2d_1/vars/0"), with the layer's name as an attribute. To map
groups to variables, Keras saves an equal model whose variables contain their own numbers.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from stagecraft.common.errors import cleaned
from stagecraft.trainer_module.models.initial_weights.source import (
    InitialWeightsError,
    Kind,
    Source,
)

_MEMBER = "model.weights.h5"
"""The weights in a ``.keras`` file, which is a zip archive."""

_LARGER = 4
"""Times the bytes of a model that its file may have: optimizers keep slots for each weight."""

_SLACK = 1 << 24
"""Bytes of a file's own structure."""

_OTHERS = re.compile(r"^optimizer/|(^|/)(seed_)?generator(_\d+)?/|_metrics?/|_tracker/")
"""Entries of a compiled model besides its weights."""


def read(source: Source, donor: keras.Model) -> dict[str, np.ndarray]:
    """Variable path -> value; a value without a variable keeps its name in the file.

    It compares names and shapes before it reads values. What the model has no variable for, or one
    of another shape, becomes zeros of the stored shape that take no memory.

    Args:
        donor: a model built like the one for the weights; its values are overwritten.

    Raises:
        InitialWeightsError: the file is damaged, or stores less than it says.
    """
    largest = _LARGER * sum(_bytes(variable) for variable in donor.variables) + _SLACK
    with tempfile.TemporaryDirectory(prefix="stagecraft-") as folder:
        path = pathlib.Path(folder, "numbered.weights.h5")
        by_number = dict(enumerate(donor.weights, start=1))
        for number, variable in by_number.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # such as int8
                variable.assign(np.full(variable.shape, number))
        donor.save_weights(path)
        with _layout(path, io.BytesIO(path.read_bytes())) as numbered:
            values = {name: _value(item) for name, item in numbered.items.items()}
            named = {by_name: _named(numbered, by_name) for by_name in (True, False)}
    with _layout(source.path, _opened(source, largest)) as stored:
        by_name = bool(stored.layers)  # early versions of Keras 3 did not store layers' names
        own = {name: values[item] for name, item in named[by_name].items()}
        paths = _paths(source, own, by_number)
        shapes = {variable.path: tuple(variable.shape) for variable in donor.weights}
        return {
            paths.get(name, name): (
                _value(stored.items[item])
                if shapes.get(paths.get(name, "")) == stored.items[item].shape
                else _blank(stored.items[item])
            )
            for name, item in _named(stored, by_name).items()
            if name in paths or not (name in own or _OTHERS.search(name))
        }


def _bytes(variable: keras.Variable) -> int:
    return int(np.prod(variable.shape, dtype=int)) * 8


def _value(item: Any) -> np.ndarray:
    """The values of a dataset."""
    value = np.asarray(item)
    if item.attrs.get("dtype") == "bfloat16":  # which HDF5 does not support
        value = value.view(tf.bfloat16.as_numpy_dtype)
    return value


def _blank(item: Any) -> np.ndarray:
    """Zeros of a dataset's shape, which take no memory."""
    return np.broadcast_to(np.zeros((), np.float32), item.shape)


def _paths(
    source: Source, numbered: Mapping[str, np.ndarray], by_number: Mapping[int, keras.Variable]
) -> dict[str, str]:
    """Name in a file -> variable path; each value in ``numbered`` is the number of its variable."""
    paths = {}
    for name, value in numbered.items():
        if not value.size or _OTHERS.search(name):
            continue
        try:
            variable = by_number[int(value.flat[0])]
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # not a variable
        if tuple(variable.shape) == value.shape and np.all(value == value.flat[0]):
            paths[name] = variable.path
    lost = {v.path for v in by_number.values() if np.prod(v.shape)} - set(paths.values())
    if lost:
        raise InitialWeightsError(
            source.path,
            f"{source.kind.value} cannot be read for this model, because Keras stores "
            f"{', '.join(sorted(lost)[:5])} in a layout that their layer defines; use a checkpoint "
            "or a pushed model",
        )
    return paths


def _opened(source: Source, largest: int) -> IO[bytes]:
    """The weights as a file of HDF5; a compressed one has at most ``largest`` bytes."""
    try:
        if source.kind is Kind.WEIGHTS_H5:
            return source.path.open("rb")
        with zipfile.ZipFile(source.path) as archive:
            member = archive.getinfo(_MEMBER)
            if member.file_size > max(largest, source.path.stat().st_size):
                problem = f"{_MEMBER} has {member.file_size} bytes, too many for this model"
                raise InitialWeightsError(source.path, problem)
            return io.BytesIO(archive.read(member))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InitialWeightsError(source.path, f"not a complete, readable file: {error}") from None
    except KeyError:
        raise InitialWeightsError(
            source.path,
            f"has no {_MEMBER}, unlike the .keras files of Keras 3; save the model again with "
            "Keras 3",
        ) from None


class _Layout(NamedTuple):
    """The datasets of a file, which is open."""

    items: dict[str, Any]
    """Name -> ``h5py.Dataset``."""
    layers: dict[str, str]
    """Group ("layers/dense_1") -> name of its layer."""


@contextlib.contextmanager
def _layout(path: pathlib.Path, file: IO[bytes]) -> Iterator[_Layout]:
    """Names, shapes and types; reads no value."""
    import h5py

    items: dict[str, Any] = {}
    layers: dict[str, str] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group) and "name" in item.attrs:
            layers[name.removesuffix("vars").rstrip("/")] = str(item.attrs["name"])
        if not isinstance(item, h5py.Dataset) or item.shape is None:
            return
        if item.external or item.is_virtual:  # data in other files, which the user has not named
            raise ValueError(f"{name} is in another file")
        # Keras writes neither; both may make much out of few bytes.
        if item.id.get_create_plist().get_nfilters():
            raise ValueError(f"{name} is compressed; save the weights again with Keras")
        if item.size and item.id.get_storage_size() < item.size * item.dtype.itemsize:
            raise ValueError(f"{name} has the shape {item.shape}, but fewer values")
        items[name] = item

    try:
        with file, h5py.File(file, "r") as opened:
            opened.visititems(visit)  # follows no links
            yield _Layout(items, layers)
    except InitialWeightsError:
        raise
    except Exception as error:  # for a damaged file h5py raises OSError, KeyError, RuntimeError, …
        raise InitialWeightsError(path, f"cannot be read: {cleaned(str(error))}") from None


def _named(layout: _Layout, by_name: bool) -> dict[str, str]:
    """Name of each dataset -> its place in the file.

    The names have the layers' own names in place of numbers, if ``by_name``.

    Keras numbers the layers of a class, and reads by that number alone: if a layer is inserted
    before another one, it would get that one's weights. Layers with automatic names keep a number,
    among those of their class with such names.
    """
    if not by_name:
        return {name: name for name in layout.items}
    segments: dict[str, str] = {}
    containers: dict[str, list[str]] = {}
    for group in layout.layers:
        container = group.rpartition("/")[0]
        if container and container not in layout.layers:  # otherwise an attribute names the group
            containers.setdefault(container, []).append(group)
    for groups in containers.values():
        uses = Counter(layout.layers[group] for group in groups)
        seen: Counter[str] = Counter()
        for group in sorted(groups, key=_number):
            kind, layer = _kind(group), layout.layers[group]
            if uses[layer] > 1 or re.fullmatch(rf"{re.escape(kind)}(_\d+)?", layer):
                segments[group] = f"{kind}_{seen[kind]}" if seen[kind] else kind
                seen[kind] += 1
            else:
                segments[group] = layer
    return {_renamed(name, segments): name for name in layout.items}


def _renamed(name: str, segments: Mapping[str, str]) -> str:
    parts = name.split("/")
    return "/".join(
        segments.get("/".join(parts[: index + 1]), part) for index, part in enumerate(parts)
    )


def _kind(group: str) -> str:
    """``layers/dense_1`` -> ``dense``."""
    return re.sub(r"_\d+$", "", group.rpartition("/")[2])


def _number(group: str) -> int:
    """``layers/dense_1`` -> 1."""
    match = re.search(r"_(\d+)$", group)
    return int(match[1]) if match else 0
