"""What a user's task returns is checked, because TensorFlow would broadcast it."""

import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.data.tasks import checks, softmax
from stagecraft.trainer_module.data.tasks.kinds.image_classification import ImageClassification
from stagecraft.trainer_module.data.tasks.metric import Mean

WEIGHTS = tf.ones([4])


@pytest.mark.parametrize("shape", [[], [1], [4, 1], [3]])
def test_a_tensor_without_a_number_for_each_example(shape):
    with pytest.raises(UserError) as refused:
        checks.rows("the loss of mine", tf.zeros(shape), WEIGHTS)
    assert (refused.value.setting, refused.value.value) == ("task.name", "the loss of mine")


def test_shapes_that_fit():
    checks.rows("it", tf.zeros([4]), WEIGHTS)
    checks.rows("it", tf.zeros([4, 2]), WEIGHTS, 2)


@tf.function(input_signature=[tf.TensorSpec([None, 1])], autograph=False)
def column(values):
    checks.rows("it", values, values[:, 0])


@tf.function(input_signature=[tf.TensorSpec([None])], autograph=False)
def row(values):
    checks.rows("it", values, values)


def test_a_batch_of_unknown_size():
    row(WEIGHTS)
    with pytest.raises(UserError):
        column(WEIGHTS[:, tf.newaxis])


def test_a_metric_of_the_whole_batch():
    metric = Mean("share", lambda outputs, targets: tf.reduce_mean(outputs))
    with pytest.raises(UserError) as refused:
        metric.sums(WEIGHTS, WEIGHTS, WEIGHTS, tf.float32)
    assert refused.value.value == "the metric share"


class Mine(ImageClassification):
    name, monitor = "mine", "auc"


def test_the_monitor_is_a_metric():
    task = Mine()
    with pytest.raises(SettingError) as refused:
        task.check_metrics()
    assert (refused.value.setting, refused.value.value) == ("task.name", "mine")
    for known in ("accuracy", "loss"):
        task.monitor = known
        task.check_metrics()


@pytest.mark.parametrize("name", ["loss", "step", "accuracy", "example_count"])
def test_a_metric_with_a_name_that_is_taken(name):
    task = Mine()
    task.monitor = "accuracy"
    own = [*task.metrics(), Mean(name, softmax.is_correct)]
    task.metrics = lambda: own
    with pytest.raises(SettingError) as refused:
        task.check_metrics()
    assert (refused.value.setting, refused.value.value) == ("task.name", "mine")


def test_the_best_evaluation_is_a_number():
    values = [(0.5, 1.0), (float("nan"), 0.1), (0.9, 2.0), (0.9, 1.5)]
    evaluations = [
        Evaluation(step, loss, accuracy=value) for step, (value, loss) in enumerate(values)
    ]
    for order in (evaluations, evaluations[::-1]):
        assert [each.step for each in ImageClassification().ranked(order)] == [3, 2, 0, 1]
