"""Finds models that compute the same, so that the costs of one are those of all.

Two models have equal keys if they call layers of the same classes, with the same attributes, in the
same graph. Names, seeds and the values of weights do not count. The key reads what a layer holds,
not its ``get_config``, which omits what callers change after the layer was made: an activation, a
``call``, low-rank adapters.

Code from outside Keras, KerasHub and Stagecraft may compute by anything, such as its name or a
global counter. A model that contains such a layer or function has no key.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models import model_graph

Key = tuple[Any, ...]
"""Hashable."""

_TRUSTED = ("keras", "keras_hub", "stagecraft")
"""Packages whose layers compute by what they hold alone."""

_CONTAINERS = ("builtins", "collections", "tensorflow", *_TRUSTED)
"""Packages whose lists and dictionaries are nothing but what they contain."""

_SKIPPED = frozenset(
    {
        *("name", "_name", "_path", "_parent_path"),
        *("_auto_config", "_inbound_nodes", "_outbound_nodes", "_tracker"),
        *("_losses", "_loss_ids", "_losses_override", "_metrics", "_called"),
        *("seed", "_initial_seed"),
        *("build", "quantize"),  # Keras wraps these methods for each layer
    }
)
"""Attributes of a layer by which no call of it computes. One that a version of Keras adds makes
keys differ, which costs time only."""


def model_key(model: keras.Model) -> Key | None:
    """A value that is equal for models that compute the same; None: not known."""
    try:
        return _Reader().graph(model)
    except _Unknown:
        return None


def layer_key(layer: keras.Layer) -> Key | None:
    """The :func:`model_key` of a layer."""
    try:
        return _Reader().state(layer)
    except _Unknown:
        return None


def specs_key(inputs: Nest) -> str:
    """A text that is equal for inputs of the same structure, shapes ``[batch, …]`` and dtypes."""
    flat = tf.nest.flatten(inputs)
    places = [[id(each) for each in flat].index(id(tensor)) for tensor in flat]
    described = [(str(each.shape), tf.as_dtype(each.dtype).name) for each in flat]
    return repr((tf.nest.map_structure(lambda _: 0, inputs), described, places))


class _Unknown(Exception):
    """Something by which a model may compute, and of which nothing is known."""


class _Reader:
    """Reads one model; an object that it meets again is known by its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        """Id of a symbolic tensor -> its call, and its place among the outputs of the call."""

    def graph(self, model: keras.Model) -> Key:
        """The calls of a functional model."""
        if model_graph.obstacle(model) or not is_trusted(type(model)) or "call" in vars(model):
            raise _Unknown
        nodes = model_graph.calls(model)
        first = len(self._places)
        for number, node in enumerate(nodes, first):
            for place, tensor in enumerate(node.outputs):
                self._places[id(tensor)] = number, place
        calls = [
            (self.state(node.operation), self.state(node.arguments.args),
             self.state(node.arguments.kwargs))
            for node in nodes
        ]  # fmt: skip
        is_list = isinstance(model, keras.Sequential)
        ends = model.inputs, model.outputs[0] if is_list else model.output
        about = model.trainable, model.dtype_policy, model.supports_masking
        return (type(model), *calls, *map(self.state, (*ends, *about)))

    def state(self, value: Any) -> Any:
        """The state by which a layer, or anything that it holds, computes."""
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return type(value), value
        if isinstance(value, (list, tuple, dict, set, frozenset)):
            return self._container(value)
        if isinstance(value, keras.KerasTensor):
            return self._of_known(self._places, value)
        if isinstance(value, types.FunctionType):
            if hasattr(value, "keyed"):
                return "keyed"  # the layer's own call, with numbers that have its name
            # Not __module__, which functools.wraps copies.
            if _is_from(value.__globals__.get("__name__", ""), _TRUSTED):
                return value
            raise _Unknown
        if isinstance(value, types.MethodType):
            return self.state(value.__func__), self.state(value.__self__)
        if isinstance(value, (inspect.Signature, tf.DType, np.dtype)):
            return type(value), str(value)
        if isinstance(value, tf.TensorShape):
            return self.state(value.as_list() if value.rank is not None else None)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return str(value.dtype), value.shape, value.tobytes()
        if isinstance(value, type) and is_trusted(value):
            return value
        if isinstance(value, types.ModuleType) and _is_from(value.__name__, _TRUSTED):
            return value  # the backend of a seed generator
        if is_trusted(type(value)):
            return self._object(value)
        raise _Unknown

    def _container(self, value: Any) -> Key:
        kind = type(getattr(value, "__wrapped__", value))  # TensorFlow wraps what layers hold
        if not _is_from(kind.__module__, _CONTAINERS):
            raise _Unknown
        if isinstance(value, dict):
            return (dict, *((self.state(name), self.state(each)) for name, each in value.items()))
        if isinstance(value, (set, frozenset)):
            return set, frozenset(map(self.state, value))
        return (tuple if isinstance(value, tuple) else list, *map(self.state, value))

    def _object(self, value: Any) -> Key:
        kind = type(value)
        if id(value) in self._numbers:
            return kind, self._numbers[id(value)]
        self._numbers[id(value)] = len(self._numbers)
        if isinstance(value, keras.Variable):
            described = value.dtype, value.trainable, value.regularizer, value.constraint
            return (kind, tuple(value.shape), *map(self.state, described))
        if isinstance(value, keras.Model):
            return self.graph(value)
        return (kind, *self._attributes(value))

    def _attributes(self, value: Any) -> Iterator[Key]:
        if not hasattr(value, "__dict__"):
            raise _Unknown
        for name, each in sorted(vars(value).items()):
            # Initializers have done their work.
            skipped = name.startswith("_self_") or name.endswith("_initializer")
            if not skipped and (name not in _SKIPPED or not _is_named(value)):
                yield name, self.state(each)

    def _of_known(self, known: dict[int, tuple[int, int]], value: Any) -> Key:
        if id(value) not in known:
            raise _Unknown
        return keras.KerasTensor, known[id(value)]


def _is_named(value: Any) -> bool:
    """Whether an object's name and seed are for people and for random numbers alone."""
    return isinstance(value, (keras.Operation, keras.random.SeedGenerator))


def is_trusted(kind: type) -> bool:
    """Whether a class is of a trusted package."""
    return _is_from(kind.__module__, _TRUSTED)


def _is_from(module: str, packages: Sequence[str]) -> bool:
    return module.partition(".")[0] in packages
