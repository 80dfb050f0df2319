"""A model's own classes and functions, which Keras does not find by their names."""

from __future__ import annotations

import contextlib
import functools
import types
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import keras

from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.models.layers import arguments

_DEEPEST = 3
"""Levels of lists and dictionaries in which a layer may hold a function, such as an argument."""


def serialized(model: keras.Model) -> tuple[Any, Mapping[str, Any]]:
    """The configuration of a model, and its own classes and functions by their names there.

    Functions get names that no other function has. The second value is for
    ``keras.saving.custom_object_scope``.

    Raises:
        SettingError: two classes have the same name.
    """
    held = [*_held(model)]
    functions = {id(each): each for each in held if isinstance(each, types.FunctionType)}
    with _unique_names(functions.values()) as named, _complete(model):
        config = _builtin(keras.saving.serialize_keras_object(model))
    objects: dict[str, Any] = {}
    used = set(_strings(config))
    for kind in (type(each) for each in held if not isinstance(each, types.FunctionType)):
        name = keras.saving.get_registered_name(kind)
        if name in used and objects.setdefault(name, kind) is not kind:
            raise SettingError(
                "train.model",
                model.name,
                f"has two classes with the name {name}, {_full_name(objects[name])} and "
                f"{_full_name(kind)}",
                "@keras.saving.register_keras_serializable(package=…) for one of them, or a "
                "function that builds the model",
            )
    return config, objects | {name: each for name, each in named.items() if name in used}


@contextlib.contextmanager
def _complete(model: keras.Model) -> Iterator[None]:
    """In the block, ``get_config`` of Keras's layers has the arguments that it forgets."""
    changed = []
    try:
        for layer in model._flatten_layers():
            if isinstance(layer, keras.Model):
                continue
            config = layer.get_config()
            if lost := arguments.forgotten(type(layer), layer, config):
                vars(layer)["get_config"] = functools.partial(dict, config, **lost)
                changed.append(layer)
        yield
    finally:
        for layer in changed:
            del vars(layer)["get_config"]


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _held(model: keras.Model) -> Iterator[Any]:
    """Layers, and objects and functions that layers hold, if they are not Keras's."""
    for layer in model._flatten_layers():
        if _is_own(type(layer)):
            yield layer
        yield from _in_values(vars(layer).values(), _DEEPEST)


def _in_values(values: Iterable[Any], depth: int) -> Iterator[Any]:
    for value in values:
        if isinstance(value, types.FunctionType):
            if _is_own(value):
                yield value
        elif isinstance(value, Mapping):
            yield from _in_values([*value.values()], depth - 1) if depth else ()
        elif isinstance(value, (list, tuple)):
            yield from _in_values(value, depth - 1) if depth else ()
        elif hasattr(type(value), "get_config") and _is_own(type(value)):
            yield value


def _is_own(value: Any) -> bool:
    """Whether Keras does not find a class or function by its name."""
    if isinstance(value, types.FunctionType):  # also keras.ops.gelu, which is another than "gelu"
        return getattr(keras.activations, value.__name__, None) is not value
    return not (value.__module__ or "").startswith("keras.")


@contextlib.contextmanager
def _unique_names(functions: Collection[Any]) -> Iterator[Mapping[str, Any]]:
    """Gives functions unique names in configurations, where their own are not."""
    named, before = {}, []
    counts = Counter(each.__name__ for each in functions)
    try:
        for number, function in enumerate(functions):
            name = function.__name__
            taken = counts[name] > 1 or name == "<lambda>" or hasattr(keras.activations, name)
            if taken and keras.saving.get_registered_name(function) == name:
                before.append((function, name))
                function.__name__ = f"stagecraft_function_{number}"
            named[keras.saving.get_registered_name(function)] = function
        yield named
    finally:
        for function, name in before:
            function.__name__ = name


def _builtin(config: Any) -> Any:
    """The configuration in plain lists: those of a layer, which Keras tracks, cannot be pickled."""
    if isinstance(config, Mapping):
        return {key: _builtin(value) for key, value in config.items()}
    if type(config) is tuple:
        return tuple(map(_builtin, config))
    return [*map(_builtin, config)] if isinstance(config, list) else config


def _strings(config: Any) -> Iterator[str]:
    """All strings in a configuration, and with them the names of classes and functions."""
    if isinstance(config, str):
        yield config
    elif isinstance(config, Mapping):
        for value in config.values():
            yield from _strings(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _strings(value)
