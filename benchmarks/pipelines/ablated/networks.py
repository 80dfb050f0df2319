"""The network of the recipe with one piece replaced, for ``train.model``.

The environment variable RECIPE_MODEL names the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.layers.own_layers import Whitening

VARIABLE = "RECIPE_MODEL"


def whitening(**arguments: Any) -> keras.Model:
    """With an ordinary convolution of the same shape, which trains, instead of the whitening."""

    def ordinary(layer: Any) -> Any:
        filters = layer.kernel.shape[-1]
        return keras.layers.Conv2D(filters, layer.size, dtype=layer.dtype_policy, name=layer.name)

    return _with(Whitening, ordinary, arguments)


def identity(**arguments: Any) -> keras.Model:
    """With Keras's initial kernels instead of those that begin as the identity."""
    return _with(keras.layers.Conv2D, _copy(kernel_initializer="glorot_uniform"), arguments)


def scale(**arguments: Any) -> keras.Model:
    """With a scale in each normalisation."""
    return _with(keras.layers.BatchNormalization, _copy(scale=True), arguments)


def _copy(**changed: Any) -> Callable[[Any], Any]:
    return lambda layer: type(layer).from_config({**layer.get_config(), **changed})


def _with(kind: type, change: Callable[[Any], Any], arguments: dict[str, Any]) -> keras.Model:
    """The network with each layer of a kind replaced."""
    family, sizes = registries.model_family(os.environ[VARIABLE])
    same = _copy()
    return keras.models.clone_model(
        family.build(**arguments, **sizes),
        clone_function=lambda layer: (change if isinstance(layer, kind) else same)(layer),
    )
