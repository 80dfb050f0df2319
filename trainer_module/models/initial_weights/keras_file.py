"""Weights by variable path, out of a file that Keras wrote: ``.keras`` or ``.weights.h5``.

Such a file knows no variables' paths. It has a group for each layer, called by the layer's class
and a number ("layers/conv2d_1/vars/0"), with the layer's name as an attribute. Which group is which
variable is found by having Keras save a like model whose variables hold their own numbers.
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
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.models.initial_weights.source import (
    InitialWeightsError,
    Kind,
    Source,
)
from stagecraft.trainer_module.models.initial_weights.stored import Weights

_MEMBER = "model.weights.h5"
"""In a ``.keras`` file, which is a zip archive."""

_OTHERS = re.compile(r"^optimizer/|(^|/)(seed_)?generator(_\d+)?/|_metrics?/|_tracker/")
"""What a compiled model stores beside its weights."""


def read(source: Source, donor: keras.Model) -> Weights:
    """Variable path -> value. What the model has no variable for goes by its name in the file.

    Args:
        source: the file.
        donor: built as the model is that the weights are for; its values are overwritten.

    Raises:
        InitialWeightsError: the file is damaged, or a layer stores its weights in its own way.
    """
    stored = _layout(source.path, _opened(source))
    with tempfile.TemporaryDirectory(prefix="stagecraft-") as folder:
        path = pathlib.Path(folder, "like.weights.h5")
        numbered = dict(enumerate(donor.weights, start=1))
        for number, variable in numbered.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # one of int8
                variable.assign(np.full(variable.shape, number))
        donor.save_weights(path)
        like = _layout(path, io.BytesIO(path.read_bytes()))
    by_name = bool(stored.layers)  # early versions of Keras 3 did not store layers' names
    own = _named(like, by_name)
    paths = _paths(source, own, numbered)
    return {
        paths.get(name, name): value
        for name, value in _named(stored, by_name).items()
        if name in paths or not (name in own or _OTHERS.search(name))
    }


def _paths(
    source: Source, like: Mapping[str, np.ndarray], numbered: Mapping[int, keras.Variable]
) -> dict[str, str]:
    """Name in a file -> variable path, of variables that hold their own numbers."""
    paths = {}
    for name, value in like.items():
        if not value.size or _OTHERS.search(name):
            continue
        try:
            variable = numbered[int(value.flat[0])]
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # another thing that the layer stores
        if tuple(variable.shape) == value.shape and np.all(value == value.flat[0]):
            paths[name] = variable.path
    lost = {v.path for v in numbered.values() if np.prod(v.shape)} - set(paths.values())
    if lost:
        raise InitialWeightsError(
            source.path,
            f"{source.kind.value} cannot be read for this model, because Keras stores "
            f"{', '.join(sorted(lost)[:5])} in a layout that its layer chooses; give a checkpoint "
            "or a pushed model",
        )
    return paths


def _opened(source: Source) -> IO[bytes]:
    try:
        if source.kind is Kind.WEIGHTS_H5:
            return source.path.open("rb")
        with zipfile.ZipFile(source.path) as archive:
            return io.BytesIO(archive.read(_MEMBER))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InitialWeightsError(
            source.path, f"not a whole file that can be read: {error}"
        ) from None
    except KeyError:
        raise InitialWeightsError(
            source.path,
            f"has no {_MEMBER}, as the .keras files of Keras 3 have; save the model again with "
            "Keras 3",
        ) from None


class _Layout(NamedTuple):
    """The datasets of a file."""

    values: dict[str, np.ndarray]
    """Name -> value."""

    layers: dict[str, str]
    """Group ("layers/dense_1") -> the name of the layer that it was written by."""


def _layout(path: pathlib.Path, file: IO[bytes]) -> _Layout:
    import h5py

    values: dict[str, np.ndarray] = {}
    layers: dict[str, str] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group) and "name" in item.attrs:
            layers[name.removesuffix("vars").rstrip("/")] = str(item.attrs["name"])
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:  # other files, that nobody named
            raise ValueError(f"{name} lies in another file")
        value = np.asarray(item)
        if item.attrs.get("dtype") == "bfloat16":  # which HDF5 doesn't know
            value = value.view(tf.bfloat16.as_numpy_dtype)
        values[name] = value

    try:
        with file, h5py.File(file, "r") as opened:
            opened.visititems(visit)  # follows no links
    except Exception as error:  # of a damaged file h5py says OSError, KeyError, RuntimeError, …
        text = " ".join(str(error).split())[:300]
        raise InitialWeightsError(path, f"cannot be read: {text}") from None
    return _Layout(values, layers)


def _named(layout: _Layout, by_name: bool) -> dict[str, np.ndarray]:
    """The datasets, under names in which a layer's own name stands in place of its number.

    Keras numbers the layers of a class, and goes by that number alone: with a layer put before it,
    the weights of a layer would go into another one. Layers with automatic names keep a number,
    among those of their class with such names.

    Args:
        layout: of a file.
        by_name: False: the names stay as they are.
    """
    if not by_name:
        return dict(layout.values)
    segments: dict[str, str] = {}
    containers: dict[str, list[str]] = {}
    for group in layout.layers:
        container = group.rpartition("/")[0]
        if container and container not in layout.layers:  # else it is called as its attribute is
            containers.setdefault(container, []).append(group)
    for groups in containers.values():
        given = Counter(layout.layers[group] for group in groups)
        seen: Counter[str] = Counter()
        for group in sorted(groups, key=_number):
            kind, layer = _kind(group), layout.layers[group]
            if given[layer] > 1 or re.fullmatch(rf"{re.escape(kind)}(_\d+)?", layer):
                segments[group] = f"{kind}_{seen[kind]}" if seen[kind] else kind
                seen[kind] += 1
            else:
                segments[group] = layer
    return {_renamed(name, segments): value for name, value in layout.values.items()}


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
    found = re.search(r"_(\d+)$", group)
    return int(found[1]) if found else 0
