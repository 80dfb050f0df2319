"""Builds the model of ``train.model``: a family, a class of KerasHub, or a user's function."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.common import signatures, user_objects
from stagecraft.common.errors import SettingError, UserError, nearest, said
from stagecraft.trainer_module import hub, registries
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Task
from stagecraft.trainer_module.models import keras_hub_models, model_graph, opened_files
from stagecraft.trainer_module.models.layers import overrides
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError

_log = logging.getLogger(__name__)

_Call = tuple[str, str]
"""A model's name, and as JSON all its arguments and the task's preset."""

_Given = Mapping[str, Any]
"""``train.model_args``."""

_NONE: _Given = {}


class _Known(NamedTuple):
    """State of an open :func:`files_shared`."""

    built: set[_Call]
    builds: bool


_known: ContextVar[_Known | None] = ContextVar("_known", default=None)

_read: dict[str | _Call, set[str]] = {}
"""User's module, and ``module:function`` -> all files read for it in this process: an import, or a
function with a cache, reads only once. KerasHub reads the files of a preset in each call."""


def build(
    name: str, arguments: ModelArguments, task: Task, given: _Given = _NONE
) -> keras.Model | list[keras.Model]:
    """A new model, its weights initialised from Keras's seed.

    Args:
        name: ``cnn``, ``resnet20`` (any 6n + 2), ``wide_resnet_16_4`` (any depth 6n + 4, any
            width), ``keras_hub:CLASS``, or ``package.module:function``, which is called with
            ``arguments`` and ``given``.
        arguments: what the task says about inputs and outputs; for pictures
            ``input_shape`` (height, width, channels) and ``num_classes``.
        task: checks the outputs.
        given: ``train.model_args``.

    Returns:
        A model; or, where a user's function returns them, models that follow each other.

    Raises:
        UserError: there is no such model, or a user's function fails or returns something else.
    """
    family, sizes = registries.model_family(name)
    if family is None:
        return _build_users(name, arguments, task, given)
    registries.check_family(name, arguments)
    if given:
        use = "train.model_args: {}"
        raise SettingError("train.model_args", dict(given), f"have no effect on {name}", use)
    model: keras.Model = family.build(**arguments, **sizes)
    return model


def files_read(
    name: str, arguments: ModelArguments, task: Task, given: _Given = _NONE
) -> list[str]:
    """Absolute paths of the files that a user's function reads while it builds its model.

    Builds the model, unless it was built in an open :func:`files_shared` block. Ignores errors of
    the build.
    """
    if ":" not in name:
        return []
    call = _call_of(name, arguments, task, given)
    with files_shared() as known:
        if known.builds and call not in known.built:
            try:
                build(name, arguments, task, given)
            except UserError as error:
                _log.info("Some files that the model reads may be missing: %s", error)
    own = call if hub.class_name(name) else name
    files = _read.get(name.partition(":")[0], set()) | _read.get(own, set())
    return sorted(filter(os.path.isfile, files))


@contextlib.contextmanager
def files_shared(*, builds: bool = True) -> Iterator[_Known]:
    """Lets :func:`files_read` build each model at most once in this block, or never."""
    known = _known.get()
    if known is not None:
        yield known
        return
    known = _Known(set(), builds)
    token = _known.set(known)
    try:
        yield known
    finally:
        _known.reset(token)


@contextlib.contextmanager
def _reading(what: str | _Call) -> Iterator[None]:
    with opened_files.recording() as recorded:
        try:
            yield
        finally:
            _read.setdefault(what, set()).update(recorded.files())


def _call_of(name: str, arguments: ModelArguments, task: Task, given: _Given) -> _Call:
    return name, json.dumps([dict(arguments), dict(given), task.preset], sort_keys=True)


def _build_users(
    name: str, arguments: ModelArguments, task: Task, given: _Given
) -> keras.Model | list[keras.Model]:
    call = _call_of(name, arguments, task, given)
    if known := _known.get():
        known.built.add(call)
    with _reading(call if hub.class_name(name) else name):
        if hub.class_name(name):
            model: keras.Model = keras_hub_models.build(name, arguments, given, task)
            overrides.check([model])
            keras_hub_models.check(name, model, arguments, task)
            return model
        models = _call(name, arguments, given)
        chain = models if isinstance(models, list) else [models]
        overrides.check(chain)
        _check(name, chain, arguments, task)
    return models


def _call(name: str, arguments: ModelArguments, given: _Given) -> keras.Model | list[keras.Model]:
    """Calls the user's function; its result is a model or a list of models."""
    module_name = name.partition(":")[0]
    known = module_name in sys.modules
    with contextlib.nullcontext() if known else _reading(module_name):
        function = user_objects.load("train.model", name)
    if not callable(function):
        kind = type(function).__name__
        use = "a function that returns a Keras model"
        raise SettingError("train.model", name, f"is of type {kind}", use)
    _check_given(name, function, arguments, given)
    try:
        models = function(**arguments, **given)
    except Exception as error:  # whatever the user's function raises
        where = _where(error, getattr(sys.modules.get(module_name), "__file__", None))
        raise UserError(
            f"train.model: {name}({_shown({**arguments, **given})}) failed{where}: {said(error)}"
        ) from error
    models = list(models) if isinstance(models, tuple) else models
    for model in models if isinstance(models, list) and models else [models]:
        if not isinstance(model, keras.Model):
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            raise UserError(
                f"train.model: {name} returned {kind}, not a Keras 3 model (import keras) or a "
                "list of such models"
            )
    return models


def _check_given(name: str, function: Any, arguments: ModelArguments, given: _Given) -> None:
    """Refuses ``train.model_args`` that a user's function does not take, or gets from the task."""
    if not given:
        return
    parameters = inspect.signature(function).parameters
    known = [each for each in parameters if each not in arguments]
    for argument in given:
        if argument in arguments:
            use = nearest(argument, known) or "no arguments"
            problem = "is an argument that the task gives"
            raise SettingError("train.model_args", argument, problem, use)
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        signatures.refuse_unknown("train.model_args", given, known, name)


def _shown(arguments: ModelArguments) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())


def _check(name: str, models: list[keras.Model], arguments: ModelArguments, task: Task) -> None:
    """Runs a batch through the models, which builds subclassed ones, and checks the outputs."""
    specs = task.input_specs(arguments)
    outputs: Any = tf.nest.map_structure(lambda spec: model_graph.zeros(spec, 3), specs)
    for index, model in enumerate(models):
        part = f"{name}, stage {index}" if len(models) > 1 else name
        given = _shape(outputs)
        try:
            outputs = model(outputs, training=False)
        except UserError:
            raise
        except Exception as error:  # whatever the user's layers raise
            raise UserError(
                f"train.model: {part} does not accept a batch of shape {given}: {said(error)}"
            ) from error
    if getattr(outputs, "_keras_mask", None) is not None:
        raise ModelRefusedError(
            name,
            "returns logits with a mask, with which Keras would exclude examples from the loss",
            "remove the mask before the logits, with a pooling layer or a Lambda layer",
        )
    task.check_outputs(name, outputs, arguments)


def _shape(value: Any) -> Any:
    """Shape of a tensor, or shapes of a structure; the type's name of anything else."""

    def of_leaf(leaf: Any) -> Any:
        shape = getattr(leaf, "shape", None)
        return type(leaf).__name__ if shape is None else tuple(shape)

    return tf.nest.map_structure(of_leaf, value)


def _where(error: Exception, file: str | None) -> str:
    """The last line of the user's own module in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" at {file}:{lines[-1]}" if lines else ""
