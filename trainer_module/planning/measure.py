"""How long the pieces of a model take on a device: each kind of piece is timed by itself.

All kinds are timed in turns, so that what slows the machine down slows down all of them. What a
call takes that computes nothing is subtracted: in a stage, there is no call for each piece.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.models.stages import functional
from stagecraft.trainer_module.models.stages.costs import StageCost, Times
from stagecraft.trainer_module.models.stages.stage import Stage

_log = logging.getLogger(__name__)

_LEAST_ROUNDS, _MOST_ROUNDS = 3, 20
_ENOUGH_SECONDS = 8.0
"""Of all rounds together, once there are as many as there have to be."""

_LEAST_SECONDS = 1e-9
"""Of a pass that takes no longer than a call that computes nothing: shares divide by a sum."""


def piece_times(
    pieces: Sequence[keras.Model],
    costs: Sequence[StageCost],
    *,
    examples: int,
    device: str,
    jit: bool = False,
    remat: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Times]:
    """Seconds of one example through each piece: medians.

    Args:
        pieces: models that follow one another, of one input and one output each.
        costs: theirs; pieces of one kind take equally long.
        examples: of a microbatch, which is what is timed.
        device: such as ``"GPU:0"``.
        jit: as in the training, and
        remat: likewise.
        on_progress: called with kinds that are ready to be timed, and kinds in all.
    """
    kinds: dict[str, keras.Model] = {}
    for piece, cost in zip(pieces, costs, strict=True):
        kinds.setdefault(cost.kind, piece)
    first = functional.input_of(pieces[0])
    inputs = keras.Input(first.shape[1:], dtype=first.dtype)
    nothing = keras.Model(inputs, keras.layers.Identity()(inputs))
    runs: list[Callable[[], Any]] = []
    for done, piece in enumerate([nothing, *kinds.values()]):
        on_progress(done, len(kinds))
        runs += _runs(Stage(piece, jit=jit, remat=remat), examples, device)
        for run in runs[-2:]:
            _wait(run())  # traced
    medians = _medians(runs)
    pairs = zip(medians[::2], medians[1::2], strict=True)
    overhead, *taken = (Times(there, max(both - there, 0)) for there, both in pairs)
    found = {}
    for kind, times in zip(kinds, taken, strict=True):
        forward = max(times.forward - overhead.forward, _LEAST_SECONDS) / examples
        backward = max(times.backward - overhead.backward, _LEAST_SECONDS) / examples
        found[kind] = Times(forward, backward)
        _log.debug("%s: %s", kinds[kind].name, found[kind])
    return [found[cost.kind] for cost in costs]


def _runs(stage: Stage, examples: int, device: str) -> list[Callable[[], Any]]:
    """Forward; and forward and backward."""
    with tf.device(device):
        weights = [tf.identity(variable.value) for variable in stage.trainable]
        state = [tf.identity(variable.value) for variable in stage.state]
        inputs = _inputs(stage.model, examples)
        step, rows = tf.constant(0, tf.int64), tf.range(examples, dtype=tf.int64)

    def forward() -> Any:
        with tf.device(device):
            return stage(weights, state, inputs, step, rows).outputs

    def both() -> Any:
        with tf.device(device), tf.GradientTape(watch_accessed_variables=False) as tape:
            sources = [*weights, *([inputs] if inputs.dtype.is_floating else [])]
            tape.watch(sources)
            outputs, _, penalty = stage(weights, state, inputs, step, rows)
        with tf.device(device):
            return outputs, tape.gradient(
                [outputs, penalty], sources, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )

    return [tf.function(function, autograph=False) for function in (forward, both)]


def _inputs(model: keras.Model, examples: int) -> tf.Tensor:
    inputs = functional.input_of(model)
    shape = [examples, *(1 if size is None else size for size in inputs.shape[1:])]
    values = np.random.default_rng(0).standard_normal(shape)
    return tf.cast(tf.constant(values), inputs.dtype)


def _medians(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of each, taken in turns."""
    started = time.perf_counter()
    seconds: list[list[float]] = [[] for _ in runs]
    for done in range(_MOST_ROUNDS):
        if done >= _LEAST_ROUNDS and time.perf_counter() - started > _ENOUGH_SECONDS:
            break
        for run, taken in zip(runs, seconds, strict=True):
            begun = time.perf_counter()
            _wait(run())
            taken.append(time.perf_counter() - begun)
    return [statistics.median(taken) for taken in seconds]


def _wait(values: Any) -> None:
    """Until a device has computed; GPUs are asked for a number, which takes waiting."""
    float(tf.reduce_sum(tf.cast(tf.nest.flatten(values)[-1][..., :1], tf.float32)))
