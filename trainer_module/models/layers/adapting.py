"""Layers whose fixed weights are computed from training data before the first step.

They are like ``keras.layers.Normalization``, but the Trainer calls :meth:`Adapting.adapt`. The
first examples of the train split decide, so each process of a training computes the same weights.
The weights are variables: checkpoints and exported models contain them.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.models.layers.walk import intercepted, walk

EXAMPLES = 5000
"""The most examples that layers adapt to, as in ``airbench94`` (Jordan 2024)."""

BYTES = 2**26
"""The most bytes of these examples."""


class Adapting(keras.layers.Layer):
    """Base of such a layer."""

    @property
    @abc.abstractmethod
    def adapted(self) -> bool:
        """Whether the weights are other than those of a new layer: loaded ones stay."""

    @abc.abstractmethod
    def adapt(self, data: np.ndarray) -> None:
        """Sets the weights from inputs of the layer, ``[examples, …]``.

        The same inputs give the same weights.
        """


def count(*shapes: Sequence[int | None]) -> int:
    """How many examples to read for :func:`adapt`; shapes of an example's float32 inputs."""
    sizes = (4 * math.prod(1 if side is None else side for side in shape) for shape in shapes)
    return max(1, min(EXAMPLES, BYTES // max(1, *sizes)))


def adapt(model: keras.Model, read: Callable[[], Any]) -> None:
    """Adapts the layers of a model that are :class:`Adapting`, and that are not adapted yet.

    Args:
        read: gives inputs of the model: arrays or tensors ``[examples, …]``. It is not called if
            there is no such layer.

    Raises:
        ModelRefusedError: the model does not call such a layer, or not with finite numbers.
    """
    layers = [(path, layer) for path, layer in walk(model) if isinstance(layer, Adapting)]
    fresh = [(path, layer) for path, layer in layers if not layer.adapted]
    given = read() if fresh else None
    for path, layer in fresh:
        inputs = np.asarray(_inputs(model, path, layer, given))
        if not np.isfinite(inputs).all():
            raise ModelRefusedError(
                f"{path} ({type(layer).__name__})",
                "adapts to its inputs, and some of them are not finite numbers",
                "check the output of preprocessing_fn, and the layers before this one",
            )
        layer.adapt(inputs)


def take_from_chief(
    model: keras.Model, is_chief: bool, add: Callable[[Sequence[float]], Sequence[float]]
) -> None:
    """Sets the weights of the layers that are :class:`Adapting` to those of the chief.

    Workers on different machines may round sums differently.

    Args:
        add: sums numbers over the workers, which all call this function.
    """
    layers = (layer for _, layer in walk(model) if isinstance(layer, Adapting))
    variables = [variable for layer in layers for variable in layer.weights]
    if not variables:
        return
    own = np.concatenate([np.ravel(variable.numpy()) for variable in variables], dtype=np.float64)
    # A sum with zeros is a broadcast.
    chiefs = np.array(add((own if is_chief else np.zeros_like(own)).tolist()))
    ends = np.cumsum([math.prod(variable.shape) for variable in variables])
    for variable, values in zip(variables, np.split(chiefs, ends), strict=False):
        variable.assign(values.reshape(variable.shape))


def _inputs(model: keras.Model, path: str, layer: Adapting, given: Any) -> Any:
    """The inputs with which the model calls the layer, the first time."""

    def stop(_: Any, __: Callable[..., Any]) -> Callable[..., Any]:
        def call(inputs: Any, *_: Any, **__: Any) -> Any:
            raise _Called(inputs)

        return call

    try:
        with intercepted([layer], stop):
            model(tf.nest.map_structure(tf.convert_to_tensor, given), training=False)
    except _Called as called:
        return called.inputs
    raise ModelRefusedError(
        f"{path} ({type(layer).__name__})",
        "adapts to its inputs, but the model does not call it",
        "remove the layer, or call it",
    )


class _Called(BaseException):
    """Ends a model's call at a layer; Keras changes only the messages of other exceptions."""

    def __init__(self, inputs: Any):
        super().__init__()
        self.inputs = inputs
