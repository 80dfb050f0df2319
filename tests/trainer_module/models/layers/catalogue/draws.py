"""Whether a model's random layers draw from the distribution that they draw from under Keras."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from catalogue.rows import Row
from catalogue.trainings import model_of
from scipy import stats

from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.pipeline_parallel.stage import Stage

_CALLS, _FEW_CALLS = 250, 60
_EXAMPLES = 2


def probability(row: Row) -> float:
    """How likely two samples of one distribution differ so much (Kolmogorov and Smirnov).

    The samples are logits of one picture: as Keras draws, and as the second part of a batch draws.
    """

    def graph(function: Callable[..., Any]) -> Callable[..., Any]:
        return function if row.unseeded else tf.function(function, autograph=False)

    calls = _FEW_CALLS if row.unseeded else _CALLS
    picture = np.random.default_rng(1).uniform(0, 1, (1, 32, 32, 3))
    images = tf.constant(np.repeat(picture, _EXAMPLES, 0), tf.float32)
    with floatx(row.precision):
        theirs = model_of(row)
        draw = graph(lambda: theirs(images, training=True))
        # One example of each call: some layers draw once for all of a batch.
        expected = [draw().numpy()[0] for _ in range(calls)]
    ours = model_of(row)
    dropout.key_layers(ours, 7)
    stage = Stage(ours, dtype=tf.as_dtype(row.precision), parts=2)
    weights = [tf.convert_to_tensor(variable.value) for variable in stage.trainable]
    state = [tf.convert_to_tensor(variable.value) for variable in stage.state]
    rows = tf.range(_EXAMPLES, 2 * _EXAMPLES, dtype=tf.int64)
    call = graph(stage)
    found = []
    for step in range(calls):
        called = call(weights, state, images, tf.constant(step, tf.int64), rows)
        found.append(called.outputs.numpy()[0])
        for index, value in called.changed.items():  # of the generators
            if index >= len(weights):
                state[index - len(weights)] = value
    # Equal draws give equal logits, but for rounding: of float32, in some layers.
    ours_of, theirs_of = (np.round(np.stack(each), 5) for each in (found, expected))
    if (ours_of == ours_of[:1]).all() and not (theirs_of == theirs_of[:1]).all():
        return 0.0  # the same draw again and again
    return float(
        min(stats.ks_2samp(ours_of[:, k], theirs_of[:, k])[1] for k in range(ours_of.shape[-1]))
    )
