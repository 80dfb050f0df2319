"""A Keras model that is a ``model_fn``."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from types import FrameType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.common.errors import UserError
from stagecraft.contrib.estimator.spec import (
    WEIGHTS,
    EstimatorSpec,
    ModeKeys,
    call_model_fn,
    check_graph,
    check_metrics,
    checked_spec,
    explained,
)

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
        """The object with this key; a first run makes it."""
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
    """Leaves to a layer what it creates in the block."""
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


class ModelFnModel(keras.Model):
    """Maps features, labels and weights to losses, metrics and predictions.

    The outputs are a dictionary: ``losses`` ``[batch]``; ``metrics``, a dictionary of ``[batch]``;
    and, in inference, ``predictions``, a dictionary of ``[batch, …]``. The loss of a batch counts
    as the loss of each of its examples, so that the losses of parts of a batch add up.
    """

    means_of_batch = ("losses", "metrics")

    def __init__(
        self,
        model_fn: Callable[..., Any],
        params: Mapping[str, Any],
        label: str,
        metrics: tuple[str, ...],
        specs: Mapping[str, Any],
    ):
        """``specs``: shape and dtype of each input, without the batch."""
        super().__init__(name="model_fn")
        self._model_fn, self._params = model_fn, dict(params)
        self._label, self._metric_names, self._specs = label, metrics, dict(specs)
        self.fn_layers: list[Any] = []
        self.fn_variables: list[keras.Variable] = []
        self._fn_weights = Weights(self.fn_layers.append, self._variable)

    def build(self, input_shape: Any) -> None:
        """Creates the weights: runs ``model_fn`` in each mode."""
        draw = np.random.default_rng(0)
        rows = {name: _noise(spec, draw) for name, spec in self._specs.items()}
        dtype = keras.config.floatx()
        rows = {
            name: tf.cast(value, dtype) if value.dtype.is_floating else value
            for name, value in rows.items()
        }
        rows.pop(WEIGHTS)
        labels = rows.pop(self._label)
        with explained():
            spec = self._run(ModeKeys.EVAL, rows, labels)
            check_metrics(spec.eval_metric_ops or {}, self._metric_names)
            in_training = self._run(ModeKeys.TRAIN, rows, labels).eval_metric_ops
            check_metrics(in_training or spec.eval_metric_ops or {}, self._metric_names)
            self._run(ModeKeys.PREDICT, rows, None)
            self._fn_weights.complete = True
            for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
                check_graph(self._traced(mode, rows, labels))
        self._check_mean(spec, rows, labels)

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Runs ``model_fn`` once or twice."""
        features = dict(inputs)
        weights, labels = features.pop(WEIGHTS), features.pop(self._label)
        if training:
            spec = self._run(ModeKeys.TRAIN, features, labels)
            measured = spec
            if self._metric_names and not spec.eval_metric_ops:
                measured = self._run(ModeKeys.EVAL, features, labels)
            return {
                "losses": _of_each(spec.loss, weights),
                "metrics": self._measured(measured, weights),
            }
        known = tf.reshape(weights, [-1]) > 0
        real = {name: tf.boolean_mask(value, known) for name, value in features.items()}
        spec = self._run(ModeKeys.EVAL, real, tf.boolean_mask(labels, known))
        predictions = self._run(ModeKeys.PREDICT, features, None).predictions
        if not isinstance(predictions, Mapping):
            predictions = {"predictions": predictions}
        return {
            "losses": _padded(spec.loss, known),
            "metrics": {
                name: _padded(value, known) for name, value in self._measured(spec).items()
            },
            "predictions": dict(predictions),
        }

    def _measured(self, spec: EstimatorSpec, weights: Any = None) -> dict[str, Any]:
        found = spec.eval_metric_ops or {}
        return {
            name: found[name] if weights is None else _of_each(found[name], weights)
            for name in self._metric_names
        }

    def _run(self, mode: str, features: Mapping[str, Any], labels: Any) -> EstimatorSpec:
        with self._fn_weights.run(mode):
            spec = call_model_fn(self._model_fn, dict(features), labels, mode, self._params)
        return checked_spec(spec, mode)

    def _traced(self, mode: str, features: Mapping[str, Any], labels: Any) -> Any:
        """The graph of ``model_fn`` in a mode; ops have the devices that it chose."""

        def run(features: Mapping[str, Any], labels: Any) -> Any:
            predicts = mode == ModeKeys.PREDICT
            with tf.device(None):
                spec = self._run(mode, features, None if predicts else labels)
            return spec.predictions if predicts else spec.loss

        function = tf.function(run, autograph=False)
        return function.get_concrete_function(features, labels).graph

    def _variable(self, path: str, value: Any, trainable: bool) -> keras.Variable:
        *scopes, name = path.split("/")
        dtype = value.dtype.name
        if dtype == "float32":
            dtype = keras.config.floatx()

        def initial(shape: Any, dtype: Any = None) -> Any:
            return tf.cast(value, dtype)

        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variable = keras.Variable(
                initial, shape=tuple(value.shape), dtype=dtype, trainable=trainable, name=name
            )
        self.fn_variables.append(variable)
        return variable

    def _check_mean(self, spec: EstimatorSpec, rows: Mapping[str, Any], labels: Any) -> None:
        """Refuses a loss that is a sum over the batch: its parts would add up to another one."""
        if tf.convert_to_tensor(spec.loss).shape.rank:
            return
        twice = {name: tf.repeat(value, 2, axis=0) for name, value in rows.items()}
        again = self._run(ModeKeys.EVAL, twice, tf.repeat(labels, 2, axis=0)).loss
        if not np.allclose(again, spec.loss, rtol=1e-3, atol=1e-6):
            raise UserError(
                f"model_fn: the loss of a batch changes from {float(spec.loss):g} to "
                f"{float(again):g} if each example occurs twice; return the mean over the batch, "
                "or the loss of each example, [batch]",
                setting="train.model",
                value="loss",
            )


def _noise(spec: Any, draw: np.random.Generator) -> tf.Tensor:
    shape = (3, *(size or 1 for size in spec.shape))
    dtype = tf.as_dtype(spec.dtype)
    if dtype.is_floating:
        return tf.constant(draw.uniform(0, 1, shape), dtype)
    return tf.zeros(shape, dtype)


def _of_each(value: Any, weights: Any) -> Any:
    """``[batch]``: the values of the examples, or the value of the batch for each."""
    value = tf.convert_to_tensor(value)
    if value.shape.rank:
        return value
    return tf.fill(tf.shape(weights)[:1], value)


def _padded(value: Any, known: Any) -> Any:
    """Values of the examples that are known, or of all of them together; 0 for padding."""
    value = tf.convert_to_tensor(value)
    if value.shape.rank:
        return tf.scatter_nd(tf.where(known), value, tf.shape(known, tf.int64))
    # The mean of no examples is not a number.
    return tf.where(known, value, tf.zeros_like(value))
