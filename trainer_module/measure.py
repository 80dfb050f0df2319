"""How long the pieces of a model take on a device: each kind of piece is timed once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.costs import StageCost, Times
from stagecraft.trainer_module.stage import Stage

_log = logging.getLogger(__name__)

_LEAST_RUNS, _MOST_RUNS = 3, 20
_ENOUGH_SECONDS = 0.2
"""Of a kind of piece, after its first run."""


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
    """Seconds of one example through each piece, from the fastest of some runs.

    Args:
        pieces: models that follow one another, of one input and one output each.
        costs: theirs; pieces of one kind take equally long.
        examples: of a microbatch, which is what is timed.
        device: such as ``"GPU:0"``.
        jit: as in the training, and
        remat: likewise.
        on_progress: called with kinds done and kinds in all.
    """
    kinds: dict[str, keras.Model] = {}
    for piece, cost in zip(pieces, costs, strict=True):
        kinds.setdefault(cost.kind, piece)
    found: dict[str, Times] = {}
    for kind, piece in kinds.items():
        on_progress(len(found), len(kinds))
        found[kind] = _time(piece, examples, device, jit=jit, remat=remat)
        _log.debug("%s: %s", piece.name, found[kind])
    on_progress(len(found), len(kinds))
    return [found[cost.kind] for cost in costs]


def _time(model: keras.Model, examples: int, device: str, *, jit: bool, remat: bool) -> Times:
    stage = Stage(model, jit=jit, remat=remat)
    with tf.device(device):
        weights = [tf.identity(variable.value) for variable in stage.trainable]
        state = [tf.identity(variable.value) for variable in stage.state]
        inputs = _inputs(model, examples)
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

    runs = [tf.function(function, autograph=False) for function in (forward, both)]
    seconds = _fastest(runs)
    there = seconds[0] / examples
    return Times(there, max(seconds[1] / examples - there, there / 2))


def _inputs(model: keras.Model, examples: int) -> tf.Tensor:
    inputs = model.inputs[0]
    shape = [examples, *(1 if size is None else size for size in inputs.shape[1:])]
    values = np.random.default_rng(0).standard_normal(shape)
    return tf.cast(tf.constant(values), inputs.dtype)


def _fastest(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of the fastest of several runs of each, taken in turns."""
    for run in runs:
        _wait(run())
    started = time.perf_counter()
    seconds: list[list[float]] = [[] for _ in runs]
    while len(seconds[0]) < _LEAST_RUNS or (
        len(seconds[0]) < _MOST_RUNS and time.perf_counter() - started < _ENOUGH_SECONDS
    ):
        for run, taken in zip(runs, seconds, strict=True):
            begun = time.perf_counter()
            _wait(run())
            taken.append(time.perf_counter() - begun)
    return [min(taken) for taken in seconds]


def _wait(values: Any) -> None:
    """Until a device has computed; GPUs are asked for a number, which takes waiting."""
    float(tf.reduce_sum(tf.cast(tf.nest.flatten(values)[-1][..., :1], tf.float32)))
