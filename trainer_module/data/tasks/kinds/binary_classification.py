"""One of two classes to predict from a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagecraft.trainer_module.data.tasks import checks, metric
from stagecraft.trainer_module.data.tasks.constant import Frequency
from stagecraft.trainer_module.data.tasks.mismatches import Observed
from stagecraft.trainer_module.data.tasks.tables.classifier import (
    Classifier,
    listed,
    ordered,
)
from stagecraft.trainer_module.data.tasks.tables.column import Column, texts

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest
    from stagecraft.trainer_module.settings import TrainSettings

THRESHOLDS = 200
"""Number of thresholds; the default of ``keras.metrics.AUC``."""


class BinaryClassification(Classifier):
    """Binary cross entropy of a logit."""

    name = "binary_classification"
    description = "one of two classes from columns of a table"
    monitor = "auc"
    report_sections = ("binary", "features")
    target_dtype = "float32"

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        positive: str | None = None,
        class_weights: checks.ClassWeights | None = None,
    ):
        """Declares the columns; see :class:`Table`.

        Args:
            label: has two values, texts or numbers: 0 and 1, or the second one in the order of
                numbers or else of the alphabet is the class 1.
            positive: the value that is the class 1; all other values are the class 0.
            class_weights: factors of the training's loss: a list for the classes 0 and 1, or a
                mapping from values of the label, with ``not VALUE`` for all but ``positive``;
                None: 1.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(features, label, weight)
        use = f'positive: "{positive}"'
        checks.of_type("task.args.positive", positive, (str, type(None)), "is not a text", use)
        self.positive = positive
        self.class_weights = checks.class_weights(class_weights, 2)
        if positive is not None:
            self.class_names = (f"not {positive}", positive)
            self.class_weights = self.weights_of(self.class_names)

    @property
    def _has_names(self) -> bool:
        return self.positive is not None

    def _finds_classes(self, kind: str) -> bool:
        return not self._has_names

    def classes(self, values: Iterable[str]) -> tuple[str, ...]:
        """Two values; 0 and 1, also if one of them is missing."""
        names = ordered(values)
        if set(names) <= {"0", "1"}:
            return ("0", "1")
        if len(names) != 2:
            number = f"{len(names)} values" if len(names) > 1 else "one value alone"
            use = f"task.name: classification, or task.args.positive: {names[-1]}"
            problem = f"has {number} in the train split, {listed(names)}, but the task takes two"
            raise self._mismatch("label", self.label, problem, use)
        return names

    def _check_labels(self, found: Observed, known: Iterable[str] | None) -> None:
        if self.positive is None:
            return
        use = f"one of {listed(ordered(known))}" if known else "a label of the type BYTES or INT"
        if found.kind == "FLOAT" or (known is not None and self.positive not in known):
            problem = f"is no value that the label {self.label} has in the train split"
            raise self._mismatch("positive", self.positive, problem, use)

    def _label_of_settings(self, values: Any) -> Any:
        """0 or 1, float32."""
        import tensorflow as tf

        return tf.cast(tf.equal(texts(values), self.positive), tf.float32)

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """0 or 1."""
        return draw.integers(0, 2, count)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logit`` and ``probability`` of the class 1, float32; ``class_id``, int64: ``[batch]``.

        ``class_name``, if the classes are not 0 and 1.
        """
        import tensorflow as tf

        logit = tf.cast(outputs[:, 0], tf.float32)
        class_id = tf.cast(logit > 0, tf.int64)
        found = {"logit": logit, "probability": tf.sigmoid(logit), "class_id": class_id}
        if (names := self.class_names or ("0", "1")) != ("0", "1"):
            found["class_name"] = tf.gather(tf.constant(list(names)), class_id)
        return found

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The cross entropy in nats, with ``train.label_smoothing``."""
        return cross_entropy(outputs[:, 0], targets, dtype, train)

    def training_weights(self, targets: Nest, dtype: Any) -> Any:
        """The weight of the label's class."""
        import tensorflow as tf

        if self.class_weights is None or isinstance(self.class_weights, Mapping):
            return None  # names without classes: the model is not trained here
        zero, one = self.class_weights
        return zero + (one - zero) * tf.cast(targets, dtype)

    def metrics(self) -> Sequence[metric.Metric]:
        """The share of right answers, and the area under the ROC curve."""
        return (metric.Mean("accuracy", _is_correct), AUC())

    def constant(self) -> Frequency:
        """The frequency of the class 1."""
        return Frequency("the frequency of the class 1")

    def sampled(self, outputs: Nest, targets: Nest) -> Mapping[str, Any]:
        """``probability`` of the class 1, and ``actual``."""
        import tensorflow as tf

        return {"probability": tf.sigmoid(_logits(outputs, tf.float32)), "actual": targets}


class AUC(metric.Metric):
    """The area under the ROC curve by buckets, as ``keras.metrics.AUC`` computes it."""

    name = "auc"
    size = 2 * THRESHOLDS

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """A one in the bucket of the probability: of the label 1, then of the label 0."""
        import tensorflow as tf

        probabilities = tf.sigmoid(_logits(outputs, dtype))
        buckets = tf.cast(tf.math.ceil(probabilities * (THRESHOLDS - 1)), tf.int32) - 1
        places = tf.one_hot(tf.maximum(buckets, 0), THRESHOLDS, dtype=dtype)
        labels = tf.cast(targets, dtype)[:, tf.newaxis]
        return tf.concat([places * labels, places * (1 - labels)], axis=1)

    def result(self, sums: np.ndarray) -> float:
        """The area by trapezoids; undefined without examples of both labels."""
        import numpy as np

        # Shares of each label above each threshold.
        above = np.cumsum(np.reshape(sums, [2, THRESHOLDS])[:, ::-1], axis=1)[:, ::-1]
        if not above[:, 0].all():
            return math.nan
        true, false = above / above[:, :1]
        return float(np.sum((false[:-1] - false[1:]) * (true[:-1] + true[1:]) / 2))

    def against_constant(self, sums: np.ndarray, count: float) -> tuple[float, float] | None:
        """0.5, and the one-sided test of Mann and Whitney.

        Lehmann 1975, "Nonparametrics", section 1.4: the normal approximation, corrected for ties,
        here of a bucket.
        """
        import numpy as np
        from scipy import special

        zero, one = np.reshape(sums, [2, THRESHOLDS])
        if not (zero.sum() > 0 and one.sum() > 0 and count > 1):
            return 0.5, 0.0
        scale = count / (zero.sum() + one.sum())
        ties = scale * (zero + one)
        spread = count + 1 - (ties**3 - ties).sum() / (count * (count - 1))
        deviation = np.sqrt(max(spread, 0) / (12 * scale**2 * zero.sum() * one.sum()))
        excess = self.result(sums) - 0.5
        return 0.5, float(special.ndtr(excess / deviation)) if excess > 0 and deviation else 0.0


def _is_correct(outputs: Any, targets: Any) -> Any:
    import tensorflow as tf

    return tf.equal(tf.cast(outputs[:, 0] > 0, tf.int64), tf.cast(targets, tf.int64))


def _logits(outputs: Any, dtype: Any) -> Any:
    import tensorflow as tf

    logits = outputs[:, 0]
    return logits if logits.dtype == tf.float64 else tf.cast(logits, dtype)


def cross_entropy(logits: Any, targets: Any, dtype: Any, train: TrainSettings | None) -> Any:
    """Binary cross entropy in nats, with ``train.label_smoothing``: the shape of the logits.

    Args:
        targets: 0 or 1, of the same shape.
        dtype: at least that of the result.
        train: None: no smoothing.
    """
    import tensorflow as tf

    logits = logits if logits.dtype == tf.float64 else tf.cast(logits, dtype)
    labels = tf.cast(targets, logits.dtype)
    if train is not None and train.label_smoothing:
        labels = (1 - train.label_smoothing) * labels + train.label_smoothing / 2
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)


BINARY_CLASSIFICATION = BinaryClassification({}, "")
