"""Arguments of layers, and those that their ``get_config`` lacks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras

_NEVER = ("name", "dtype", "trainable", "seed")
"""Arguments that a copy of a layer may change."""


def plain(layer: keras.Layer) -> dict[str, Any]:
    """Arguments that the layer keeps as attributes: numbers, strings, None, and tuples of them."""
    return {
        name: _untracked(vars(layer)[name])
        for kind in type(layer).__mro__[:-1]
        for name in inspect.signature(kind.__init__).parameters  # type: ignore[misc]  # of its classes
        if name not in _NEVER and _is_plain(vars(layer).get(name, layer))
    }


def forgotten(
    kind: type[keras.Layer], layer: keras.Layer, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of one of Keras's own classes that the configuration of a layer lacks.

    In Keras 3.12, these are ``output_padding`` of transposed convolutions
    (``keras/src/layers/convolutional/base_conv_transpose.py``).

    Args:
        kind: the class of the layer, or one of its base classes.
    """
    if not kind.__module__.startswith("keras."):
        return {}  # an attribute of a user's class may be another value than its argument
    parameters = inspect.signature(kind.__init__).parameters
    return {
        name: value
        for name, value in plain(layer).items()
        if name in parameters and name not in config and value != parameters[name].default
    }


def _untracked(value: Any) -> Any:
    """A list as a tuple: Keras's lists of a layer cannot be pickled."""
    return tuple(map(_untracked, value)) if isinstance(value, (list, tuple)) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
