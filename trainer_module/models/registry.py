"""From a model's name to the model: ours by name, a user's by ``package.module:function``."""

from __future__ import annotations

import difflib
import importlib
import traceback
from typing import Any

import keras
import numpy as np

from stagecraft.schemas import features
from stagecraft.schemas.errors import UserError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.layers import overrides
from stagecraft.trainer_module.layers.refusal import ModelRefusedError
from stagecraft.trainer_module.models import cnn, names, resnet, wide_resnet


def build(
    name: str,
    input_shape: tuple[int, int, int] = features.IMAGE_SHAPE,
    num_classes: int = 10,
) -> keras.Model | list[keras.Model]:
    """A new model, its weights initialised from the seed that Keras has.

    Args:
        name: ``cnn``, ``resnet20`` (any 6n + 2), ``wide_resnet_16_4`` (any depth 6n + 4, any
            width), or ``package.module:function``, which is called as
            ``function(input_shape=..., num_classes=...)``.
        input_shape: ``(height, width, channels)`` of the images.
        num_classes: number of logits.

    Returns:
        A model of float32 images ``[batch, *input_shape]`` that gives logits
        ``[batch, num_classes]``; or, where a user's function returns them, models that do so
        one after the other.

    Raises:
        UserError: no such model, or a user's that cannot be made or is not as described.
    """
    try:
        family, sizes = names.parse(name)
    except ValueError as error:
        raise UserError(f"train.model: {error}") from None
    if family == "user":
        models = _call(name, input_shape, num_classes)
        chain = models if isinstance(models, list) else [models]
        overrides.check(chain)
        _check(name, chain, input_shape, num_classes)
        return models
    ours = {"cnn": cnn, "resnet": resnet, "wide_resnet": wide_resnet}
    model: keras.Model = ours[family].build(input_shape, num_classes, **sizes)
    return model


def _call(
    name: str, input_shape: tuple[int, int, int], num_classes: int
) -> keras.Model | list[keras.Model]:
    """What the user's function returns, made sure to be a model or a list of models."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        absent = missing and f"{module_name}.".startswith(f"{missing}.")
        advice = "; put the folder that holds it on PYTHONPATH" if absent else ""
        raise UserError(
            f"train.model: {name}: cannot import {module_name!r}: {said(error)}{advice}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        near = difflib.get_close_matches(function_name, public, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"train.model: {name}: no function {function_name!r} in {module.__file__}{hint}"
        )
    try:
        models = function(input_shape=input_shape, num_classes=num_classes)
    except Exception as error:  # whatever the user's function raises
        raise UserError(
            f"train.model: {name}(input_shape={input_shape}, num_classes={num_classes}) failed"
            f"{_where(error, module.__file__)}: {said(error)}"
        ) from error
    models = list(models) if isinstance(models, tuple) else models
    for model in models if isinstance(models, list) and models else [models]:
        if not isinstance(model, keras.Model):
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            raise UserError(
                f"train.model: {name} returned {kind}, not a model of Keras 3 (import keras), nor "
                "a list of them"
            )
    return models


def _check(
    name: str, models: list[keras.Model], input_shape: tuple[int, int, int], num_classes: int
) -> None:
    """Runs a batch through the models: this builds subclassed ones, and shows what comes out."""
    outputs: Any = np.zeros((3, *input_shape), np.float32)
    for index, model in enumerate(models):
        part = f"{name}, stage {index}" if len(models) > 1 else name
        given = _shape(outputs)
        try:
            outputs = model(outputs, training=False)
        except Exception as error:  # whatever the user's layers raise
            raise UserError(
                f"train.model: {part} does not take a batch of shape {given}: {said(error)}"
            ) from error
    if _shape(outputs) != (3, num_classes):
        raise UserError(
            f"train.model: {name} gives {_shape(outputs)} for a batch of 3; expected logits "
            f"[batch, {num_classes}], one for each class"
        )
    if getattr(outputs, "_keras_mask", None) is not None:
        raise ModelRefusedError(
            name,
            "gives logits with a mask, by which Keras would leave examples out of the loss",
            "drop the mask before the logits: a pooling layer takes it, or a Lambda layer",
        )
    values = np.asarray(keras.ops.convert_to_numpy(outputs), np.float32)
    # bfloat16 has 8 bits of fraction: each of the summands is off by at most 2 ** -9 of itself.
    if num_classes > 1 and values.min() >= 0 and np.allclose(values.sum(axis=1), 1, atol=4e-3):
        raise UserError(
            f"train.model: {name} gives probabilities; give logits: leave out the softmax at its "
            "end, the loss and the exported model apply it themselves"
        )


def _shape(value: Any) -> Any:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else tuple(shape)


def _where(error: Exception, file: str | None) -> str:
    """The last line of the user's own module on the way to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" at {file}:{lines[-1]}" if lines else ""
