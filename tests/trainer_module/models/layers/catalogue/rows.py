"""The rows of the catalogue: what a row is, and what its model gets."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import keras
import tensorflow as tf

CLASSES = 3
"""Of the pictures."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A layer, or another part of Keras, in a small model."""

    name: str
    build: Callable[[], keras.Model]
    covers: tuple[type, ...] = ()
    """Public classes of ``keras.layers``, ``keras.regularizers`` and ``keras.constraints``."""

    draws: Literal["", "keyed", "own"] = ""
    """Random numbers: none, by example (``dropout.py``), or Keras's own."""

    unseeded: bool = False
    """Some of its draws come from no seed of Keras's."""

    by_part: bool = False
    """Statistics are those of a part of the batch."""

    single: bool = False
    """It computes in float32, and is equal within that."""

    precision: str = "float64"
    """Of the training; some layers of Keras do not run in float64."""

    needs: str = ""
    """What Keras needs for it that is not installed with this project."""

    layer: Callable[[], Any] | None = None
    """Makes the layer alone."""


def picture_model(body: Callable[[Any], Any], name: str = "row") -> keras.Model:
    """Pictures ``[32, 32, 3]`` -> ``body`` -> logits."""
    inputs = keras.Input((32, 32, 3))
    hidden = body(inputs)
    if len(hidden.shape) > 2:
        hidden = keras.layers.Flatten(name="flat")(hidden)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="head")(hidden), name=name)


def vector(inputs: Any, size: int = 6) -> Any:
    """``[batch, size]``, made by weights that are trained."""
    pooled = keras.layers.AveragePooling2D(8, name="pooled")(inputs)
    return keras.layers.Dense(size, name="before")(keras.layers.Flatten(name="flat_in")(pooled))


def shaped(*shape: int) -> Callable[[Any], Any]:
    """``[batch, *shape]``, made by weights that are trained."""
    size = 1
    for each in shape:
        size *= each

    def make(inputs: Any) -> Any:
        return keras.layers.Reshape(shape, name="shaped")(vector(inputs, size))

    return make


def image(inputs: Any) -> Any:
    """``[batch, 4, 4, 3]``, made by weights that are trained."""
    return keras.layers.Conv2D(3, 8, strides=8, name="before")(inputs)


def tokens(inputs: Any) -> Any:
    """int64 ``[batch, 6]``, 0 to 4."""
    pooled = keras.layers.Flatten(name="flat_in")(
        keras.layers.AveragePooling2D((16, 32), name="pooled")(inputs)
    )
    return keras.layers.Lambda(
        lambda x: tf.cast(tf.math.floormod(tf.math.floor(x * 40), 5), tf.int64),
        name="tokens",
    )(pooled)


def words(inputs: Any) -> Any:
    """string ``[batch, 6]``, "0" to "4"."""
    return keras.layers.Lambda(tf.strings.as_string, name="words")(tokens(inputs))


def floats(hidden: Any) -> Any:
    """Whole numbers as floats."""
    return keras.layers.Lambda(lambda x: tf.cast(x, "float64"), name="floats")(hidden)


def row(
    make: Callable[[], Any],
    before: Callable[[Any], Any],
    *,
    name: str = "",
    call: Callable[[Any, Any], Any] = lambda layer, hidden: layer(hidden),
    after: Callable[[Any], Any] = lambda hidden: hidden,
    covers: tuple[type, ...] = (),
    **fields: Any,
) -> Row:
    """A row of one layer.

    Args:
        make: the layer.
        before: from the pictures to what it takes.
        name: of the row; the layer's class without.
        call: of the layer on what it takes.
        after: what becomes of its output.
        covers: classes besides its own.
        fields: of the row.
    """
    kind = type(make()) if not fields.get("needs") else None
    return Row(
        name=name or kind.__name__,
        build=lambda: picture_model(lambda inputs: after(call(make(), before(inputs)))),
        covers=((kind,) if kind else ()) + covers,
        layer=make,
        **fields,
    )
