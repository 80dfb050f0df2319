"""Builds the Keras model of ``train.model``; the same call gives the same model.

Names, variable paths and initial weights are equal each time, in any process and
under any strategy, so that checkpoints and exports are keyed by path.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Task
from stagecraft.trainer_module.models import build_model, matrices, model_graph, variable_patterns
from stagecraft.trainer_module.models.initial_weights import loading
from stagecraft.trainer_module.models.initial_weights.loading import Loaded
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.settings import TrainSettings

IMAGES: Task = registries.TASKS.get("image_classification")

_log = logging.getLogger(__name__)


def assemble(
    train: TrainSettings,
    arguments: ModelArguments,
    scope: AbstractContextManager[Any] | None = None,
    precision: str = "float32",
    on_loaded: Callable[[Loaded], None] = lambda _: None,
    task: Task = IMAGES,
    adapt_to: Callable[[], Nest] | None = None,
    transform: Any = None,
) -> keras.Model:
    """Builds ``train.model``.

    Seeds everything with ``train.seed``. Layers that adapt to the training data then do so.
    ``train.initial_weights`` replace the random and the adapted weights. ``train.frozen`` freezes
    layers and weights.

    Args:
        arguments: of the model's function, as ``task`` gives them.
        scope: a strategy's scope to build the model in. The caller does not enter it, because
            this function clears Keras's session, and the scope with it.
        precision: ``float32``, ``float64``, ``mixed_bfloat16`` or ``mixed_float16``: Keras's
            dtype policy, for layers without a policy.
        adapt_to: gives inputs of the model, for layers that adapt to them (see
            :mod:`~stagecraft.trainer_module.models.layers.adapting`); None: they do not.
        transform: ``tft.TFTransformOutput`` of the training, with which that of the initial weights
            is compared; None: there are no data yet.

    Raises:
        UserError: there is no such model, it gives no logits, it has nothing to train, the initial
            weights do not match it or the Transform graph, a layer cannot adapt, or a pattern of
            the settings matches none of its variables.
    """
    initial: dict[str, np.ndarray] = {}
    if train.initial_weights:
        fresh = train.without_initial_weights()
        initial, loaded = loading.read(
            train,
            lambda lora: assemble(
                fresh if lora else fresh.without_lora(),
                arguments,
                tf.device("CPU:0"),
                precision,
                task=task,
            ),
            transform,
            task.features,
        )
        on_loaded(loaded)
    # Keras numbers the layers of a process ("conv2d_7"); this restarts the count.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(train.seed)
    with scope or contextlib.nullcontext(), _policy(precision):
        built = build_model.build(train.model, arguments, task, train.model_args)
        if isinstance(built, keras.Model):
            model = built
        else:
            model = _chain(built, train.model, task.input_specs(arguments))
        model_graph.note(model, task.input_specs(arguments))
        _check(model, train.model)
        name_apart(model)
        matrices.mark(model)
        variable_patterns.apply(train, model)
        if adapt_to is not None:
            adapting.adapt(model, adapt_to)
        for variable in model.weights:
            if variable.path in initial:
                variable.assign(initial[variable.path])
    if precision == "float64":
        _of_any_dtype(model)
    return model


def _check(model: keras.Model, name: str) -> None:
    if not model.trainable_variables:
        raise SettingError(
            "train.model",
            name,
            "has nothing to train",
            "at least one layer with trainable weights",
        )


def name_apart(model: keras.Model) -> None:
    """Gives variables with the same path different ones: checkpoints know them by their paths.

    A layer that makes a weight before Keras has named its parents leaves these out of the path.
    Such variables get the path of layers that :func:`walk` gives.
    """
    counts = Counter(variable.path for variable in model.variables)
    owners: dict[int, str] = {}
    for path, layer in walk(model):  # inner layers come last
        for variable in layer.variables:
            if counts[variable.path] > 1:
                owners[id(variable)] = path
    taken = {path for path, count in counts.items() if count == 1}
    for variable in model.variables:
        if id(variable) not in owners:
            continue
        base = path = f"{owners[id(variable)].replace(':', '_')}/{variable.name}"
        number = 0
        while path in taken:
            number += 1
            path = f"{base}_{number}"
        taken.add(path)
        # Private; Keras sets it once, and the optimizer's slots take their names from it.
        variable._path = path


@contextlib.contextmanager
def _policy(precision: str) -> Iterator[None]:
    """Sets the ``precision`` of the layers that the block makes."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        with floatx("float64" if precision == "float64" else "float32"):
            yield
    finally:
        keras.config.set_dtype_policy(policy)


def _of_any_dtype(model: keras.Model) -> None:
    """Replaces float32 tensors in Keras's regularizers by numbers, which fit any dtype."""
    layers = model._flatten_layers()
    regularizers = [variable.regularizer for variable in model.variables]
    regularizers += [getattr(layer, "activity_regularizer", None) for layer in layers]
    for regularizer in filter(None, regularizers):
        for name, value in vars(regularizer).items():
            if isinstance(value, tf.Tensor) and value.dtype == tf.float32 and not value.shape.rank:
                setattr(regularizer, name, float(value))


def _chain(stages: Sequence[keras.Model], name: str, specs: Nest) -> keras.Model:
    """One model of the models of all stages, in a row."""
    _log.info("%s returns %d stages; chaining them into one model", name, len(stages))
    given = hidden = tf.nest.map_structure(
        lambda spec: keras.Input(spec.shape, dtype=spec.dtype), specs
    )
    for stage in stages:
        hidden = stage(hidden)
    return keras.Model(given, hidden)
