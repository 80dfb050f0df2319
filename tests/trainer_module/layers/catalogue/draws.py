"""Whether a model's random layers draw from the distribution that they draw from under Keras."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from catalogue.rows import Row
from catalogue.trainings import model_of
from scipy import stats

from stagecraft.trainer_module import dropout
from stagecraft.trainer_module.layers.floatx import floatx
from stagecraft.trainer_module.stage import Stage

_CALLS = 60
_EXAMPLES = 8


def probability(row: Row) -> float:
    """How likely two samples of one distribution differ so much (Kolmogorov and Smirnov).

    The samples are logits of one picture: as Keras draws, and as the second part of a batch draws.
    """
    picture = np.random.default_rng(1).uniform(0, 1, (1, 32, 32, 3))
    images = tf.constant(np.repeat(picture, _EXAMPLES, 0), tf.float32)
    with floatx("float64"):
        theirs = model_of(row)
        draw = tf.function(lambda: theirs(images, training=True), autograph=False)
        expected = [draw().numpy() for _ in range(_CALLS)]
    ours = model_of(row)
    dropout.key_layers(ours, 7)
    stage = Stage(ours, dtype=tf.float64, parts=2)
    weights = [tf.convert_to_tensor(variable.value) for variable in stage.trainable]
    state = [tf.convert_to_tensor(variable.value) for variable in stage.state]
    rows = tf.range(_EXAMPLES, 2 * _EXAMPLES, dtype=tf.int64)
    call = tf.function(stage, autograph=False)
    found = []
    for step in range(_CALLS):
        called = call(weights, state, images, tf.constant(step, tf.int64), rows)
        found.append(called.outputs.numpy())
        for index, value in called.changed.items():  # of the generators
            if index >= len(weights):
                state[index - len(weights)] = value
    # Equal draws give equal logits, but for rounding: of float32, in some layers.
    ours_of, theirs_of = (np.round(np.stack(each), 5) for each in (found, expected))
    if (ours_of == ours_of[:1, :1]).all() and not (theirs_of == theirs_of[:1, :1]).all():
        return 0.0  # the same draw again and again
    return float(
        min(
            stats.ks_2samp(ours_of[..., k].ravel(), theirs_of[..., k].ravel())[1]
            for k in range(ours_of.shape[-1])
        )
    )
