"""The language model's tied embedding, on replicas of three stages."""

import numpy as np
import tensorflow as tf
from driving import ONE, STAGES, assert_no_drift, engine_of
from task_cases import CASES, STEPS, arguments, examples, settings, steps_of

from stagecraft.trainer_module.settings import ParallelSettings

CASE = CASES["language_model"]._replace(model="transformer_1_16_2")
TIED = "embedding/embeddings"


def make(parallel):
    training = settings(CASE, optimizer="adamw", clip_norm=0.5, ema_decay=0.9)
    asked = ParallelSettings(**parallel, precision="float64", virtual_devices=6)
    training = training.model_copy(update={"parallel": asked})
    return engine_of(training, arguments(CASE), STEPS, task=training.task.found)


def test_gradients_and_weights_of_the_tied_embedding_are_those_of_one_device():
    one, split = make(ONE), make({**STAGES, "replicas": 2})
    (tied,) = split.plan.tied
    assert (tied.path, tied.stages) == (TIED, [0, 2])
    batches = tf.data.Dataset.from_tensor_slices(steps_of(examples(CASE)))
    (_, expected), (_, found) = (
        engine.gradients(next(engine.feed(batches))) for engine in (one, split)
    )
    assert np.abs(expected[TIED]).max() > 1e-3
    np.testing.assert_allclose(found[TIED], expected[TIED], rtol=0, atol=1e-10)
    start = one.weights()[TIED]
    for engine in (one, split):
        engine.train(engine.feed(batches), STEPS)
    assert_no_drift(split)
    assert np.abs(one.weights()[TIED] - start).max() > 1e-3
    for name in (f"model/{TIED}", f"ema/{TIED}"):
        np.testing.assert_allclose(split.state()[name], one.state()[name], rtol=0, atol=1e-10)
