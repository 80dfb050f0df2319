"""Several processes that call ``fit`` together: callbacks work in the chief, and all follow it."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

# Not public: whether the caller has set a seed.
from tensorflow.python.eager import context

METHODS = ("fit", "evaluate", "predict")
"""Of a model: those that take callbacks."""

_SHOWS = (keras.callbacks.History, keras.callbacks.ProgbarLogger)


def method(own: Callable[..., Any], model: Any, session: Any) -> Callable[..., Any]:
    """A method of a model that all processes call, with the callbacks of the chief alone.

    The chief's callbacks find a model that works in its process. Afterwards the others get what
    callbacks may have changed: weights, state of the optimizer, ``stop_training``.
    """

    @functools.wraps(own)
    def shared(*args: Any, **kwargs: Any) -> Any:
        workers, signature = session.peers, inspect.signature(own)
        if workers.count == 1:  # a callback of the chief calls it
            return own(*args, **kwargs)
        _agree_on_seed(workers)
        bound = signature.bind(*args, **kwargs)
        rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")

        def argument(name: str) -> Any:
            """The mapping that holds an argument; some classes pass it on."""
            known = name in signature.parameters
            return bound.arguments if known else bound.arguments.setdefault(rest, {})

        given = argument("callbacks")
        callbacks = given.get("callbacks") or []
        if isinstance(callbacks, keras.callbacks.CallbackList):
            if any(isinstance(each, _Following) for each in callbacks.callbacks):
                return own(*args, **kwargs)  # a validation of fit
            callbacks = callbacks.callbacks
        several = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        own_callbacks = [each if isinstance(each, _SHOWS) else _Alone(each, session)
                         for each in several]  # fmt: skip
        if workers.number:
            own_callbacks = []
            argument("verbose")["verbose"] = 0
        given["callbacks"] = [_Ready(), *own_callbacks, _Following(workers, several)]
        return own(*bound.args, **bound.kwargs)

    return shared


class _Ready(keras.callbacks.Callback):
    """Makes the optimizer's state before a callback of the chief reads it from a file."""

    def on_train_begin(self, logs: Any = None) -> None:
        """See Keras."""
        build_optimizer(self.model)


class _Following(keras.callbacks.Callback):
    """Gives all processes what the chief's callbacks have changed."""

    def __init__(self, workers: Any, callbacks: Any):
        super().__init__()
        self._workers = workers
        self._after_batches = any(map(acts_on_batches, callbacks))

    def _follow(self, *_: Any) -> None:
        model = self.model
        first = getattr(model, "_initial_epoch", None)
        flags = [float(bool(model.stop_training)), -1.0 if first is None else float(first)]
        flags.append(float(self._after_batches))
        stop, first, after = self._workers.from_chief(state(model), flags)
        model.stop_training = bool(stop)
        model._initial_epoch = None if first < 0 else int(first)
        self._after_batches = bool(after)

    def on_train_begin(self, logs: Any = None) -> None:
        """See Keras."""
        self._follow()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        self._follow()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        self._follow()

    def on_train_end(self, logs: Any = None) -> None:
        """See Keras."""
        self._follow()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See Keras."""
        if self._after_batches:
            self._follow()


def build_optimizer(model: Any) -> None:
    """Makes the optimizer's state, if the model is built."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or optimizer.built or not is_built(model):
        return
    optimizer.build(model.trainable_variables)


def is_built(model: Any) -> bool:
    """Whether the model has all of its variables."""
    return all(layer.built for layer in model._flatten_layers())


def state(model: Any) -> list[Any]:
    """The variables that a training changes, each once.

    They are the weights, the optimizer's state, and Keras's random state.
    """
    optimizer = getattr(model, "optimizer", None)
    of_optimizer = [] if optimizer is None else optimizer.variables
    found = [*model.variables, *of_optimizer, global_seed_generator().state]
    return list({id(each): each for each in found}.values())


_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")

_ONLY_READ = (
    keras.callbacks.TensorBoard,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.CSVLogger,
)


def acts_on_batches(callback: Any) -> bool:
    """Whether a callback does something before or after batches that a training may depend on."""
    if type(callback) in _ONLY_READ:
        return False
    base = keras.callbacks.Callback
    return any(
        getattr(getattr(callback, name, None), "__func__", None) is not getattr(base, name)
        for name in _HOOKS
    )


class _Alone(keras.callbacks.Callback):
    """A callback of the caller's, which sees a model of this process alone."""

    def __init__(self, callback: Any, session: Any):
        super().__init__()
        self._callback, self._session = callback, session

    def set_params(self, params: Any) -> None:
        """See Keras."""
        self._callback.set_params(params)

    def set_model(self, model: Any) -> None:
        """See Keras."""
        self._callback.set_model(model)
        super().set_model(model)


def _hook(name: str) -> Callable[..., None]:
    def call(self: _Alone, *args: Any, **kwargs: Any) -> None:
        with self._session.alone():
            getattr(self._callback, name)(*args, **kwargs)

    return call


for _name in [each for each in vars(keras.callbacks.Callback) if each.startswith("on_")]:
    setattr(_Alone, _name, _hook(_name))


def _agree_on_seed(workers: Any) -> None:
    """Gives all processes the chief's random states, so that they shuffle alike.

    They are those of Python and NumPy, and TensorFlow's seed: numbers of at most 32 bits.
    """
    set_before = context.context()._seed
    drawn = random.getrandbits(31) if set_before is None else set_before
    version, python, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state()
    own = [float(drawn), float(set_before is not None), *map(float, python)]
    own += [*map(float, keys), float(place), float(has_gauss), float(cached)]
    seed, was_set, *rest = workers.from_chief([], own)
    if not was_set or set_before != int(seed):
        tf.random.set_seed(int(seed))
    if workers.number:
        random.setstate((version, tuple(map(int, rest[: len(python)])), gauss))
        *keys, place, has_gauss, cached = rest[len(python) :]
        np.random.set_state((name, np.array(keys, np.uint32), int(place), int(has_gauss), cached))
