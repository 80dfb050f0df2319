"""The best answer that does not look at the inputs: a model must beat it to be blessed.

Imports no TensorFlow.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest


class Constant(abc.ABC):
    """Outputs that sums over the targets of the train split determine."""

    answer: str
    """Completes "always answering …"."""

    @abc.abstractmethod
    def sums(self, targets: Nest, weights: Any) -> Any:
        """The term that a batch adds to the sums: a float64 tensor of any one shape.

        Args:
            targets: ``[batch, …]``.
            weights: float64 ``[batch]``.
        """

    @abc.abstractmethod
    def outputs(self, sums: np.ndarray, targets: Nest) -> Nest:
        """The constant as outputs of a model for a batch, which the loss takes.

        Args:
            sums: of all batches.
            targets: ``[batch, …]``: only their shapes matter.
        """


class Mean(Constant):
    """The weighted mean of targets ``[batch]`` or ``[batch, 1]``, as outputs ``[batch, 1]``."""

    def __init__(self, answer: str):
        """``answer``: see the base class."""
        self.answer = answer

    def sums(self, targets: Any, weights: Any) -> Any:
        """Targets and weights."""
        import tensorflow as tf

        targets = tf.cast(tf.reshape(targets, [-1]), tf.float64)
        return tf.stack([tf.reduce_sum(weights * targets), tf.reduce_sum(weights)])

    def outputs(self, sums: np.ndarray, targets: Any) -> Any:
        """The mean."""
        import tensorflow as tf

        total, weight = sums
        return tf.fill([tf.shape(targets)[0], 1], tf.constant(total / weight, tf.float32))


class Frequencies(Constant):
    """The logarithms of the classes' frequencies, as logits ``[batch, …, classes]``.

    Each class counts once more than it occurs, so that no logit is infinite.
    """

    def __init__(self, classes: int, answer: str, counted: Callable[[Any], Any] | None = None):
        """Takes the number of classes.

        Args:
            answer: see the base class.
            counted: maps targets, integers ``[batch, …]``, to whether they count; None: all do.
        """
        self._classes, self.answer, self._counted = classes, answer, counted

    def sums(self, targets: Any, weights: Any) -> Any:
        """The weight of each class."""
        import tensorflow as tf

        targets = tf.cast(targets, tf.int64)
        counted = tf.ones_like(targets) if self._counted is None else self._counted(targets)
        weights = tf.reshape(weights, [-1, *[1] * (targets.shape.rank - 1)])
        weights = weights * tf.cast(counted, tf.float64)
        return tf.math.unsorted_segment_sum(
            tf.reshape(weights, [-1]), tf.reshape(targets, [-1]), self._classes
        )

    def outputs(self, sums: np.ndarray, targets: Any) -> Any:
        """The logits."""
        import numpy as np
        import tensorflow as tf

        logits = tf.constant(np.log((sums + 1) / (sums + 1).sum()), tf.float32)
        shape = tf.concat([tf.shape(targets), [self._classes]], axis=0)
        return tf.ensure_shape(tf.broadcast_to(logits, shape), [*targets.shape, self._classes])


class Frequency(Constant):
    """The logits of the frequencies of labels, as outputs ``[batch, labels]``.

    Targets are 0 or 1: ``[batch]`` for one label, or ``[batch, labels]``. Each label counts once
    more as present and as absent, so that no logit is infinite.
    """

    def __init__(self, answer: str):
        """``answer``: see the base class."""
        self.answer = answer

    def sums(self, targets: Any, weights: Any) -> Any:
        """The weight of each label, and of all examples."""
        import tensorflow as tf

        targets = tf.convert_to_tensor(targets)
        if targets.shape.rank != 2:
            targets = tf.reshape(targets, [-1, 1])
        present = tf.reduce_sum(weights[:, tf.newaxis] * tf.cast(targets, tf.float64), axis=0)
        return tf.concat([present, [tf.reduce_sum(weights)]], axis=0)

    def outputs(self, sums: np.ndarray, targets: Any) -> Any:
        """The logits."""
        import numpy as np
        import tensorflow as tf

        sums = np.asarray(sums)
        present, total = sums[:-1], sums[-1]
        logits = np.log(present + 1) - np.log(total - present + 1)
        shape = [tf.shape(targets)[0], len(logits)]
        return tf.broadcast_to(tf.constant(logits, tf.float32), shape)
