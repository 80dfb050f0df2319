"""The tasks of canned models: labels and predictions as Estimator has them.

Loss and metrics are those of the tasks on tables. Imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.trainer_module.data.tasks.tables.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.tables.classification import (
    Classification,
    class_numbers,
)
from stagecraft.trainer_module.data.tasks.tables.column import Column
from stagecraft.trainer_module.data.tasks.tables.regression import Regression

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Nest


_NONE: Mapping[str, Any] = MappingProxyType({})
"""Estimator has its own defaults."""


class RegressionHead(Regression):
    """The task of the regressors. Estimator does not scale labels."""

    train_defaults = _NONE

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``predictions``: float32 ``[batch, 1]``."""
        import tensorflow as tf

        return {"predictions": tf.cast(outputs, tf.float32)}


class BinaryHead(BinaryClassification):
    """The task of the classifiers of two classes: one logit."""

    train_defaults = _NONE

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
    ):
        """See :class:`Classification`."""
        given = None if label_vocabulary is None else tuple(label_vocabulary)
        super().__init__(features, label, weight, None if given is None else str(given[1]))
        self.label_vocabulary = given

    def to_label(self, raw: Any) -> Any:
        """0 or 1, float32 ``[batch]``; any other label is an error."""
        import tensorflow as tf

        return tf.cast(class_numbers(raw, self.label, 2, self.label_vocabulary), tf.float32)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``logistic``, ``class_ids``, ``classes`` ``[batch, 1]``; ``probabilities``
        ``[batch, 2]``."""
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        logistic = tf.sigmoid(logits)
        return {
            "logits": logits,
            "logistic": logistic,
            "probabilities": tf.concat([1 - logistic, logistic], axis=1),
            **_classes(tf.cast(logits > 0, tf.int64), 2, self.label_vocabulary),
        }


class ClassHead(Classification):
    """The task of the classifiers of more classes."""

    train_defaults = _NONE

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities`` ``[batch, classes]``; ``class_ids``, ``classes``
        ``[batch, 1]``."""
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        ids = tf.argmax(logits, axis=-1)[:, tf.newaxis]
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            **_classes(ids, self.num_classes, self.label_vocabulary),
        }


def _classes(ids: Any, count: int, vocabulary: Sequence[Any] | None) -> dict[str, Any]:
    import tensorflow as tf

    names = tf.constant(list(map(str, range(count) if vocabulary is None else vocabulary)))
    return {"class_ids": ids, "classes": tf.gather(names, ids)}
