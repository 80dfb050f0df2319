"""Builds a caller's model again, on any devices: same configuration, same weights."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.layers.preprocessing.index_lookup import IndexLookup

from stagecraft import copies, pickles, process_state
from stagecraft.common.errors import SettingError, UserError, said
from stagecraft.trainer_module.data.tasks.task import Spec
from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.models.layers import arguments


class Builder:
    """Builds a model; called by ``train.model``.

    The model is not compiled: the settings say what ``compile`` of Keras does.
    """

    def __init__(self, build: Callable[..., Any]):
        self._build = build

    def __call__(self, **arguments: Any) -> Any:
        """A new model, or several that follow each other.

        Args:
            arguments: of the task; the caller's function gets those that it has.
        """
        parameters = inspect.signature(self._build).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            arguments = {name: value for name, value in arguments.items() if name in parameters}
        with process_state.as_tf_keras():
            made = self._build(**arguments)
        for model in made if isinstance(made, (list, tuple)) else [made]:
            if getattr(model, "compiled", False):
                model.compiled = False
        return made

    def get_config(self) -> Mapping[str, Any]:
        """The configuration on which the builder's name depends: not the weights of a model."""
        if isinstance(self._build, Copy):
            return self._build.get_config()
        return {"function": pickles.digest(self._build)}

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_build": self._build}


class Copy:
    """Builds copies of a model, with its weights."""

    def __init__(self, model: keras.Model):
        """Takes the model as it is now.

        Raises:
            SettingError: the model holds something that no other process can have.
        """
        with contextlib.suppress(Exception), _unchanged(model):
            # Some layers make weights in their first call; not all models know their inputs.
            symbolic = model_graph.of(model)
            model(tf.nest.map_structure(_zeros, symbolic), training=False)
        try:
            self._pickle = pickles.dumps(model)
        except Exception as error:  # whatever an object's __reduce__ raises
            raise SettingError(
                "train.model",
                model.name,
                f"cannot be copied: {said(error)}",
                "a function that builds the model",
            ) from error
        self._structure = structure(model)

    def get_config(self) -> Mapping[str, Any]:
        """The configuration on which the model's name depends: not the weights."""
        return self._structure

    def __call__(self) -> keras.Model:
        """A new copy."""
        return copies.loads(self._pickle)


def structure(model: keras.Model, *, named: bool = True) -> Mapping[str, Any]:
    """A model's computation without its weights, as text; equal in each run of a script.

    Args:
        named: with the paths of variables, which count the models of a process.
    """
    layers = [
        [
            type(layer).__qualname__,
            layer.trainable,
            arguments.plain(layer),
            {
                name: pickles.digest(own)
                for name, own in copies.attributes(layer).items()
                if _has_code(own) and not hasattr(type(layer), name)  # Keras wraps methods
            },
            layer.get_vocabulary() if isinstance(layer, IndexLookup) else None,
        ]
        for layer in model._flatten_layers()
    ]
    nodes = [
        node
        for inner in model._flatten_layers()
        if isinstance(inner, keras.Model) and not model_graph.obstacle(inner)
        for node in model_graph.computed(inner)
    ]
    places: dict[int, int] = {}
    graph = [
        [
            places.setdefault(id(each), len(places))
            for each in (node.operation, *(x._keras_history.operation for x in node.input_tensors))
        ]
        for node in nodes
    ]
    variables = [
        [each.path if named else "", list(each.shape), str(each.dtype), each.trainable]
        for each in model.variables
    ]
    return {"layers": layers, "graph": graph, "variables": variables}


def _has_code(value: Any) -> bool:
    """Whether it is a function, a regularizer or the like."""
    known = (keras.regularizers.Regularizer, keras.constraints.Constraint)
    return isinstance(value, (types.FunctionType, *known))


def builder(model: Any) -> Builder:
    """Makes a builder: of copies of a Keras model, or of what a function returns.

    It copies a model once now, so that errors show here.

    Raises:
        SettingError: it is neither, or the model cannot be copied.
    """
    if isinstance(model, keras.Model):
        copies_of = Builder(Copy(model))
        copies_of()
        return copies_of
    if callable(model) and not isinstance(model, type):
        return Builder(model)
    shown = model.__name__ if isinstance(model, type) else type(model).__name__
    use = "a keras.Model, or a function that returns one"
    raise SettingError("train.model", shown, "is not a Keras 3 model", use)


def compiled(build: Callable[[], Any]) -> Any:
    """The model that the caller's function returns without arguments, compiled by that function.

    Raises:
        UserError: the function fails.
    """
    try:
        with process_state.as_tf_keras():
            return build()
    except Exception as error:  # whatever the user's function raises
        name = getattr(build, "__name__", type(build).__name__)
        raise UserError(
            f"train.model: {name}() failed: {said(error)}", setting="train.model", value=name
        ) from error


def compile_arguments(model: keras.Model) -> Mapping[str, Any]:
    """Arguments of the model's ``compile``, by name: loss, metrics and so on."""
    config: Mapping[str, Any] = model._compile_config.config  # private: what compile received
    return config


@contextlib.contextmanager
def _unchanged(model: keras.Model) -> Iterator[None]:
    """Keeps the state of a model, such as counters, which are no weights to train."""
    state = [(each, tf.identity(each)) for each in model.non_trainable_variables]
    try:
        yield
    finally:
        for variable, value in state:
            variable.assign(value)


def _zeros(symbol: Any) -> np.ndarray:
    return model_graph.zeros(Spec(symbol.shape[1:], symbol.dtype), 2)
