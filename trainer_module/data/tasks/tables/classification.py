"""One of several classes to predict from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks import checks, metric, softmax
from stagecraft.trainer_module.data.tasks.constant import Frequencies
from stagecraft.trainer_module.data.tasks.tables.column import Column, places
from stagecraft.trainer_module.data.tasks.tables.table import Table

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest
    from stagecraft.trainer_module.settings import TrainSettings


class Classification(Table):
    """Softmax cross entropy of a logit for each class."""

    name = "classification"
    description = "one of several classes from columns of a table"
    monitor = "accuracy"

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        num_classes: int | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        class_weights: Sequence[float] | None = None,
    ):
        """Declares the columns; see :class:`Table`.

        Args:
            label: a number of a class, from 0; or a value of ``label_vocabulary``.
            num_classes: needed without ``label_vocabulary``.
            label_vocabulary: the texts or integers that are labels, in the order of the classes.
            class_weights: factors of the training's loss, for each class; None: 1.

        Raises:
            SettingError: an argument is invalid.
        """
        self.label_vocabulary = None if label_vocabulary is None else tuple(label_vocabulary)
        given = len(self.label_vocabulary or ())
        if num_classes is None:
            num_classes = given
        checks.whole("task.args.num_classes", num_classes, 2)
        if self.label_vocabulary is not None and len(set(self.label_vocabulary)) != num_classes:
            problem = f"are not {num_classes} different values"
            use = "as many as task.args.num_classes, or without the latter"
            raise SettingError("task.args.label_vocabulary", label_vocabulary, problem, use)
        if class_weights is not None and (
            len(class_weights) != num_classes or min(class_weights) < 0
        ):
            problem = f"are not {num_classes} weights"
            use = str([1] * num_classes)
            raise SettingError("task.args.class_weights", class_weights, problem, use)
        super().__init__(features, label, weight, num_classes)
        self.num_classes = num_classes
        self.class_weights = None if class_weights is None else tuple(class_weights)

    @property
    def _numbers(self) -> list[str]:
        names = super()._numbers
        return [name for name in names if name != self.label or self.label_vocabulary is None]

    def to_label(self, raw: Any) -> Any:
        """The number of the class, int64 ``[batch]``; a label that is no class is an error."""
        return class_numbers(raw, self.label, self.num_classes, self.label_vocabulary)

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Numbers of classes."""
        return draw.integers(0, self.num_classes, count)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities``, ``class_id``; ``class_name`` with a vocabulary."""
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        class_id = tf.argmax(logits, axis=-1)
        result = {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_id": class_id,
        }
        if self.label_vocabulary is not None:
            names = tf.constant(list(map(str, self.label_vocabulary)))
            result["class_name"] = tf.gather(names, class_id)
        return result

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The cross entropy in nats, with ``train.label_smoothing``."""
        return softmax.cross_entropy(outputs, _classes(targets), dtype, train)

    def training_weights(self, targets: Nest, dtype: Any) -> Any:
        """The weight of the label's class."""
        import tensorflow as tf

        if self.class_weights is None:
            return None
        return tf.gather(tf.constant(self.class_weights, dtype), _classes(targets))

    def metrics(self) -> Sequence[metric.Metric]:
        """The share of the examples whose largest logit is their label's."""
        return (metric.Mean("accuracy", _is_correct),)

    def constant(self) -> Frequencies:
        """The most frequent class, and the frequencies."""
        return Frequencies(self.num_classes, "the most frequent class")


def class_numbers(raw: Any, label: str, count: int, vocabulary: Sequence[Any] | None) -> Any:
    """The numbers of classes, int64 ``[batch]``; a label that is no class is an error.

    Args:
        raw: the labels: numbers, or values of the vocabulary.
        label: name of the raw feature.
    """
    import tensorflow as tf

    values = tf.reshape(raw, [-1])
    if vocabulary is None:
        # A fraction is no class.
        numbers = tf.cast(values, tf.float64)
        inside = (numbers >= 0) & (numbers < count) & (numbers == tf.floor(numbers))
        ids = tf.where(inside, tf.cast(numbers, tf.int64), count)
    else:
        texts = values if values.dtype == tf.string else tf.as_string(values)
        found = places(vocabulary, label).lookup(texts)
        ids = tf.where(found < 0, tf.constant(count, tf.int64), found)
    # As an index, since an assertion would also run in a request without label.
    return tf.gather(tf.range(count, dtype=tf.int64), ids)


def _is_correct(outputs: Any, targets: Any) -> Any:
    return softmax.is_correct(outputs, _classes(targets))


def _classes(targets: Any) -> Any:
    import tensorflow as tf

    return tf.cast(targets, tf.int64)
