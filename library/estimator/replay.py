"""Runs a ``model_fn`` again and again with the same weights.

The first run creates the weights. In each later run, the layers and variables that ``model_fn``
creates stand for those of the first run: a layer with a name for the layer of this name, others
for the layer of the same class and number, a variable of ``get_variable`` for the one of its name,
and a ``tf.Variable`` for the one of its number.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

import keras
import tensorflow as tf

from stagecraft.schemas.errors import UserError

_current: ContextVar[Run | None] = ContextVar("model_fn", default=None)

_lock = threading.Lock()
_open = 0
_layer_call = keras.layers.Layer.__call__
_seed_init = keras.random.SeedGenerator.__init__


class Weights:
    """The layers and variables of the first run, by what identifies them in later runs."""

    def __init__(
        self, add_layer: Callable[[Any], None], add_variable: Callable[..., keras.Variable]
    ):
        """Takes functions of the model that owns them.

        Args:
            add_layer: makes a layer the model's.
            add_variable: makes a variable of a path, value, dtype and whether to train it.
        """
        self.known: dict[Hashable, Any] = {}
        self.add_layer = add_layer
        self.add_variable = add_variable
        self.complete = False

    @contextlib.contextmanager
    def run(self, mode: str) -> Iterator[None]:
        """In this block, in this thread, ``model_fn`` gets its layers and variables from here."""
        current = Run(self, mode)
        token = _current.set(current)
        scope = tf.compat.v1.get_variable_scope()
        try:
            with (
                _layers_looked_up(),
                tf.variable_creator_scope(_create),
                tf.compat.v1.variable_scope(scope, custom_getter=_get_variable),
            ):
                yield
        finally:
            _current.reset(token)


class Run:
    """One run of ``model_fn``: what it has created so far."""

    def __init__(self, weights: Weights, mode: str):
        self.weights = weights
        self.mode = mode
        self._seen: dict[int, tuple[Any, Any]] = {}
        """``id`` of a layer -> this layer, which must stay alive, and the one it stands for."""
        self._counts: Counter[str] = Counter()

    def layer(self, given: Any) -> Any:
        """The layer that the given one stands for."""
        if id(given) not in self._seen:
            self._seen[id(given)] = (given, self._find(given))
        return self._seen[id(given)][1]

    def _find(self, given: Any) -> Any:
        if any(given is each for each in self.weights.known.values()):
            return given  # created outside of model_fn
        kind = type(given).__name__
        automatic = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
        key: Hashable = ("layer", given.name)
        if re.fullmatch(rf"{re.escape(automatic)}(_\d+)?", given.name):
            key = ("layer", kind, self.number(f"layer {kind}"))
        return self.known(key, f"the layer {given.name}", lambda: self._added(given))

    def _added(self, given: Any) -> Any:
        self.weights.add_layer(given)
        return given

    def number(self, kind: str) -> int:
        """How many of a kind the run has created before."""
        self._counts[kind] += 1
        return self._counts[kind] - 1

    def known(self, key: Hashable, what: str, make: Callable[[], Any]) -> Any:
        """What has this key; made if this is a first run."""
        known = self.weights.known
        if key not in known:
            if self.weights.complete:
                raise UserError(
                    f"model_fn: {what} was not there when the model was built (mode "
                    f"{self.mode!r}); create the same layers and variables in each call",
                    setting="train.model",
                    value=what,
                )
            known[key] = make()
        return known[key]


@contextlib.contextmanager
def _layers_looked_up() -> Iterator[None]:
    """Lets calls of Keras layers ask the current run; put back when the last block ends."""
    global _open
    with _lock:
        _open += 1
        keras.layers.Layer.__call__ = _call
        keras.random.SeedGenerator.__init__ = _init
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                keras.layers.Layer.__call__ = _layer_call
                keras.random.SeedGenerator.__init__ = _seed_init


def _init(generator: Any, *args: Any, **kwargs: Any) -> None:
    """The seed of a layer that stands for another one is never used, and cannot be made here."""
    run = _current.get()
    if run is None or not run.weights.complete:
        _seed_init(generator, *args, **kwargs)


def _call(layer: Any, *args: Any, **kwargs: Any) -> Any:
    run = _current.get()
    if run is None:
        return _layer_call(layer, *args, **kwargs)
    found = run.layer(layer)
    if not run.weights.complete and "training" in kwargs:
        kwargs["training"] = False  # the first run draws and updates nothing
    with _paused():
        return _layer_call(found, *args, **kwargs)


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    """What a layer creates is the layer's own."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def _create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    """``tf.Variable``."""
    run = _current.get()
    if run is None or _keras_creates():
        return next_creator(**kwargs)

    def make() -> Any:
        value = kwargs["initial_value"]
        value = value() if callable(value) else value
        if tf.is_tensor(value) and not hasattr(value, "numpy"):
            raise UserError(
                f"model_fn: a tf.Variable is only created in the mode {run.mode!r}; create it in "
                "each mode",
                setting="train.model",
                value=kwargs.get("name"),
            )
        return _added(run, _unused(run, kwargs.get("name") or "Variable"), value, kwargs)

    return run.known(("Variable", run.number("Variable")), "a tf.Variable", make)


def _keras_creates() -> bool:
    """Whether the variable is that of a Keras layer, such as the seed of a new Dropout."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame) in ("tensorflow", "stagecraft"):
        frame = frame.f_back
    return frame is not None and _module(frame) == "keras"


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _unused(run: Run, name: str) -> str:
    taken = {each.path for each in run.weights.known.values() if hasattr(each, "path")}
    found, number = name, 0
    while any(path == found or path.endswith(f"/{found}") for path in taken):
        number += 1
        found = f"{name}_{number}"
    return found


def _get_variable(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """``tf.compat.v1.get_variable``; ``name`` contains the scopes."""
    run = _current.get()
    if run is None:
        return getter(name, *args, **kwargs)
    if kwargs.get("regularizer") is not None:
        raise UserError(
            f"model_fn: the regularizer of {name} has no effect here; add the penalty to the loss",
            setting="train.model",
            value=name,
        )

    def make() -> Any:
        shape, dtype = kwargs.get("shape"), tf.as_dtype(kwargs.get("dtype") or tf.float32)
        initializer = kwargs.get("initializer")
        if initializer is None and dtype.is_floating:
            initializer = tf.compat.v1.glorot_uniform_initializer()
        elif initializer is None:
            initializer = tf.compat.v1.zeros_initializer()
        if isinstance(initializer, type):
            initializer = initializer()
        with tf.init_scope():
            value = initializer(shape, dtype=dtype) if callable(initializer) else initializer
            return _added(run, name, value, kwargs)

    return run.known(("get_variable", name), f"the variable {name}", make)


def _added(run: Run, path: str, value: Any, kwargs: dict[str, Any]) -> keras.Variable:
    trainable = kwargs.get("trainable")
    with _paused():
        value = tf.convert_to_tensor(value, kwargs.get("dtype"))
        return run.weights.add_variable(path, value, trainable is None or bool(trainable))
