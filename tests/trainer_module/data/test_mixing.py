import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data import mixing
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.settings import TrainingSettings

DRAWS = tf.constant(np.linspace(0, 2**31 - 1, 101), tf.int32)
UNIFORM = np.linspace(0, 1, 101)


def test_shares_have_the_distribution():
    """Beta(1, 1) is uniform; the quantiles of Beta(1/2, 1/2) are those of the arcsine law."""
    np.testing.assert_allclose(mixing.beta(DRAWS, 1.0), UNIFORM, atol=1e-6)
    expected = np.sin(np.pi * UNIFORM / 2) ** 2
    np.testing.assert_allclose(mixing.beta(DRAWS, 0.5), expected, atol=1e-6)


def test_the_loss_is_that_of_the_mixed_targets():
    draw = np.random.RandomState(0)
    logits = tf.constant(draw.randn(4, 3))
    own, partners = (tf.constant(draw.randint(0, 3, 4)) for _ in range(2))
    share = tf.constant([0.25, 0.5, 0.75, 1.0])
    weights = tf.constant([[1.0, 1.0], [1.0, 4.0], [2.0, 0.5], [3.0, 1.0]])
    batch = Batch(None, mixing.Mixed(own, partners, share, weights), tf.ones([4]))
    part, of_own = tf.cast(share, tf.float64)[:, None], tf.cast(weights, tf.float64)
    target = part * of_own[:, :1] * tf.one_hot(own, 3, dtype=tf.float64)
    target += (1 - part) * of_own[:, 1:] * tf.one_hot(partners, 3, dtype=tf.float64)
    expected = tf.nn.softmax_cross_entropy_with_logits(target, logits)
    objective = Objective(TrainingSettings())
    np.testing.assert_allclose(objective.loss(logits, batch), tf.reduce_sum(expected), rtol=1e-12)
    larger = tf.concat([partners[:1], own[1:]], axis=0)
    plain = batch._replace(targets=larger)
    np.testing.assert_array_equal(objective.sums(logits, batch), objective.sums(logits, plain))


@pytest.mark.parametrize(
    ("task", "augment", "use"),
    [
        ("segmentation", "crop,mixup", "crop,flip"),
        ("taxi", "cutmix", "none"),
        ("image_classification", "mixup,cutmix", ""),
    ],
)
def test_refused_by_name(task, augment, use):
    error = refusal(TrainingSettings, {"task": {"name": task}, "train": {"augment": augment}})
    assert error.setting == "train.augment"
    assert use in error.suggestion


def test_they_come_last():
    assert registries.augmentations(["mixup", "cutout", "crop"]) == ("crop", "cutout", "mixup")
