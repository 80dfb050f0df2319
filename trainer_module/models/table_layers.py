"""Layers that the families for tables share. Imports Keras inside functions only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stagecraft.trainer_module import safe_names
from stagecraft.trainer_module.models.family import ModelFamily

NONE: Mapping[str, int] = MappingProxyType({})
"""Lengths where each input has one value."""


class DeepFamily(ModelFamily):
    """Base of families with dense layers: ``NAME_64_32`` has layers of 64 and 32 units."""

    is_wide = False
    """Whether a linear model is added."""

    def sizes(self, name: str) -> dict[str, Any] | None:
        """``units`` of each dense layer, in order."""
        match = re.fullmatch(rf"{self.name}((_[1-9]\d*)+)", name)
        return {"units": tuple(map(int, match[1].split("_")[1:]))} if match else None

    def build(
        self,
        numeric: Sequence[str],
        categorical: Mapping[str, int],
        outputs: int,
        lengths: Mapping[str, int] = NONE,
        *,
        units: Sequence[int],
    ) -> Any:
        """Builds the model."""
        import keras

        given = inputs(numeric, categorical, lengths)
        wide = linear(given, numeric, categorical, outputs) if self.is_wide else None
        result = deep(given, numeric, categorical, units, outputs)
        if wide is not None:
            result = keras.layers.Add(name=free("sum", given))([wide, result])
        return keras.Model(given, result, name=self.name)


def inputs(
    numeric: Sequence[str], categorical: Mapping[str, int], lengths: Mapping[str, int] = NONE
) -> dict[str, Any]:
    """Symbolic inputs by name: float32, and int64 for categories.

    Args:
        lengths: of the inputs ``[batch, length]``; the others are ``[batch, 1]``.
    """
    import keras

    return {
        name: keras.Input(
            (lengths.get(name, 1),),
            # Keras takes any name but one with a slash, and warns of another one than the key.
            name=safe_names.safe(name) if "/" in name else name,
            dtype="int64" if name in categorical else "float32",
        )
        for name in (*numeric, *categorical)
    }


def linear(
    given: Mapping[str, Any], numeric: Sequence[str], categorical: Mapping[str, int], outputs: int
) -> Any:
    """A linear function of the numbers, and a weight for each category: ``[batch, outputs]``.

    Of several ids, it is the mean of their weights.
    """
    from keras import layers

    terms = []
    for name, ids in categorical.items():
        weights = layers.Embedding(
            ids, outputs, embeddings_initializer="zeros", name=free(f"weight_{name}", given)
        )(given[name])
        is_single = given[name].shape[1] == 1
        flat = layers.Flatten if is_single else layers.GlobalAveragePooling1D
        terms.append(flat(name=free(f"flat_weight_{name}", given))(weights))
    if numeric:
        numbers = _joined([given[name] for name in numeric], free("numbers", given))
        name = free("linear", given)
        terms.append(layers.Dense(outputs, kernel_initializer="zeros", name=name)(numbers))
    return layers.Add(name=free("wide", given))(terms) if len(terms) > 1 else terms[0]


def deep(
    given: Mapping[str, Any],
    numeric: Sequence[str],
    categorical: Mapping[str, int],
    units: Sequence[int],
    outputs: int,
) -> Any:
    """Dense layers with ReLU on the numbers and on embeddings of the categories.

    An embedding has the fourth root of the number of ids as dimensions, at least 2
    (https://developers.googleblog.com/2017/11/introducing-tensorflow-feature-columns.html).
    """
    from keras import layers

    parts = [given[name] for name in numeric]
    for name, ids in categorical.items():
        width, path = max(2, round(ids**0.25)), f"embedding_{name}"
        embedded = layers.Embedding(ids, width, name=free(path, given))(given[name])
        parts.append(layers.Flatten(name=free(f"flat_{path}", given))(embedded))
    hidden = _joined(parts, free("columns", given))
    for number, size in enumerate(units, start=1):
        name = free(f"dense{number}", given)
        hidden = layers.Dense(size, activation="relu", kernel_initializer="he_normal", name=name)(
            hidden
        )
    return layers.Dense(outputs, name=free("deep", given))(hidden)


def free(name: str, given: Mapping[str, Any]) -> str:
    """A layer's name that no input has; a column may have any name."""
    name = safe_names.safe(name)
    taken = {each.name for each in given.values()}
    while name in taken:
        name += "_"
    return name


def _joined(parts: Sequence[Any], name: str) -> Any:
    from keras import layers

    return layers.Concatenate(name=name)(parts) if len(parts) > 1 else parts[0]
