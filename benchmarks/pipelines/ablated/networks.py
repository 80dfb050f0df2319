"""The network of the recipe with one piece replaced, for ``train.model``.

The environment variable RECIPE_MODEL names the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.layers.whitening import Whitening

VARIABLE = "RECIPE_MODEL"


def whitening(**arguments: Any) -> keras.Model:
    """With an ordinary convolution of the same shape, which trains, instead of the whitening."""

    def ordinary(layer: Any) -> Any:
        if not isinstance(layer, Whitening):
            return layer
        filters = layer.kernel.shape[-1]
        return keras.layers.Conv2D(filters, layer.size, dtype=layer.dtype_policy, name=layer.name)

    return _with(ordinary, arguments)


def identity(**arguments: Any) -> keras.Model:
    """With Keras's initial kernels instead of those that begin as the identity."""
    return _with(_changed(keras.layers.Conv2D, kernel_initializer="glorot_uniform"), arguments)


def scale(**arguments: Any) -> keras.Model:
    """With a scale in each normalisation."""
    return _with(_changed(keras.layers.BatchNormalization, scale=True), arguments)


def _changed(kind: type, **changed: Any) -> Callable[[Any], Any]:
    def change(layer: Any) -> Any:
        if not isinstance(layer, kind):
            return layer
        return kind.from_config({**layer.get_config(), **changed})

    return change


def _with(change: Callable[[Any], Any], arguments: dict[str, Any]) -> keras.Model:
    family, sizes = registries.model_family(os.environ[VARIABLE])
    whole = family.build(**arguments, **sizes)

    def replaced(layer: Any) -> Any:
        new = change(layer)
        return type(layer).from_config(layer.get_config()) if new is layer else new

    return keras.models.clone_model(whole, clone_function=replaced)
