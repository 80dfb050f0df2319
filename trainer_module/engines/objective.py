"""The loss of a training and the metrics of its task, as sums that parts of a batch add up to."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data import mixing
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.data.tasks import checks, metric
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.engines.step_metrics import Metrics, metrics_dtype
from stagecraft.trainer_module.optimization.make_loss import make_loss
from stagecraft.trainer_module.settings import TrainingSettings


class Objective:
    """The values that an engine computes from the outputs of a model."""

    def __init__(self, settings: TrainingSettings):
        self.task: Task = settings.task.found
        self.task.check_metrics()
        self._losses = make_loss(self.task, settings.train)
        self._metrics = list(self.task.metrics())
        self._dtype = metrics_dtype(settings)
        self.dtype: tf.DType = metric.dtype_of_sums(self._metrics, self._dtype)
        """Dtype of :meth:`sums`."""
        self.size = sum(each.size for each in self._metrics)
        """Length of :meth:`sums`."""

    def loss(self, outputs: Nest, batch: Batch) -> tf.Tensor:
        """The training's loss, summed over the examples, each by its weight: a scalar."""
        losses = mixing.losses(batch.targets, lambda targets: self._in_training(outputs, targets))
        return self._weighted(losses, batch.weights)

    def _in_training(self, outputs: Nest, targets: Nest) -> tf.Tensor:
        """The loss of each example, times the task's factor: ``[batch]``."""
        losses = self._losses(outputs, targets, self._dtype, True)
        factors = self.task.training_weights(targets, losses.dtype)
        return losses if factors is None else losses * factors

    def sums(self, outputs: Nest, batch: Batch) -> tf.Tensor:
        """The sums of all metrics: ``[size]``; of a mixed example, by its larger share."""
        outputs, targets = self.task.own_unit(outputs, mixing.main(batch.targets))
        return tf.concat(
            [each.sums(outputs, targets, batch.weights, self.dtype) for each in self._metrics]
            or [tf.zeros([0], self.dtype)],
            axis=0,
        )

    def evaluation(self, outputs: Nest, batch: Batch) -> tf.Tensor:
        """``[sum of losses, sum of weights, *sums]`` of an evaluation: ``[2 + size]``."""
        losses = self._losses(outputs, batch.targets, self._dtype, False)
        loss = tf.cast(self._weighted(losses, batch.weights), self.dtype)
        weight = tf.cast(tf.reduce_sum(batch.weights), self.dtype)
        return tf.concat([[loss, weight], self.sums(outputs, batch)], axis=0)

    def evaluated(self, sums: np.ndarray) -> Metrics:
        """The metrics of an evaluation, from :meth:`evaluation` summed over all batches."""
        loss, weight, *rest = sums
        return Metrics(loss / weight, self.values(np.array(rest)), round(weight))

    def values(self, sums: np.ndarray) -> dict[str, float]:
        """Each metric by name, from :meth:`sums` added up."""
        result, start = {}, 0
        for each in self._metrics:
            result[each.name] = each.result(sums[start : start + each.size])
            start += each.size
        return result

    def _weighted(self, losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        checks.rows(f"the loss of {self.task.name}", losses, weights)
        return tf.reduce_sum(losses * tf.cast(weights, losses.dtype))
