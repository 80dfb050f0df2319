"""Any number of labels to predict from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks import metric
from stagecraft.trainer_module.data.tasks.constant import Frequency
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import cross_entropy
from stagecraft.trainer_module.data.tasks.kinds.classification import class_numbers
from stagecraft.trainer_module.data.tasks.tables.column import (
    Column,
    ValueCheck,
    checked,
    places,
    present,
    texts,
)
from stagecraft.trainer_module.data.tasks.tables.columns import Vocabulary
from stagecraft.trainer_module.data.tasks.tables.lists import MultiHot, multi_hot
from stagecraft.trainer_module.data.tasks.tables.table import Table

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest
    from stagecraft.trainer_module.settings import TrainSettings


class MultiLabel(Table):
    """Binary cross entropy of a logit for each label."""

    name = "multi_label"
    description = "any number of labels from columns of a table"
    monitor = "f1"

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str | Sequence[str],
        weight: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        separator: str | None = None,
    ):
        """Declares the columns; see :class:`Table`.

        Args:
            label: a feature with the labels of each example, none, one or several; or a list of
                features, each 0 or 1, one for each label.
            label_vocabulary: the texts or integers that are labels; for a list of features, their
                names.
            separator: between the labels in one text, such as ``;``. None: a feature with several
                values.

        Raises:
            SettingError: an argument is invalid.
        """
        self._indicators: Sequence[str] = () if isinstance(label, str) else tuple(label)
        is_one = not self._indicators
        joined = label if isinstance(label, str) else " + ".join(label)
        vocabulary = self._indicators if label_vocabulary is None else tuple(label_vocabulary)
        if is_one and label and not vocabulary:
            use = "label_vocabulary: [news, sport]"
            raise SettingError("task.args.label_vocabulary", None, "names no labels", use)
        if len(set(map(str, vocabulary))) < max(len(vocabulary), 0 if not label else 1):
            problem, use = "are not one or more different values", "[news, sport]"
            raise SettingError("task.args.label_vocabulary", vocabulary, problem, use)
        if not is_one and len(vocabulary) != len(self._indicators):
            use = f"{len(self._indicators)} names, as many as features, or none"
            problem = "does not fit the features of task.args.label"
            raise SettingError("task.args.label_vocabulary", vocabulary, problem, use)
        if not is_one and separator is not None:
            problem, use = "does not fit several features", "one feature as task.args.label"
            raise SettingError("task.args.separator", separator, problem, use)
        self.label_vocabulary = tuple(map(str, vocabulary))
        self._list = MultiHot(of=Vocabulary(), separator=separator)
        self._count = max(len(self.label_vocabulary), 1)
        super().__init__(features, joined, weight, self._count)

    @property
    def _labels(self) -> Sequence[str]:
        return self._indicators or (self.label,)

    @property
    def _required(self) -> Sequence[str]:
        names = super()._required
        return [name for name in names if self._indicators or name != self.label]

    @property
    def _numbers(self) -> list[str]:
        return [name for name in super()._numbers if self._indicators or name != self.label]

    def _raw_label(self, inputs: Mapping[str, Any]) -> Any:
        if self._indicators:
            return [inputs[name] for name in self._indicators]
        return super()._raw_label(inputs)

    def to_label(self, raw: Any) -> Any:
        """0 or 1 for each label, float32 ``[batch, labels]``; any other value is an error."""
        import tensorflow as tf

        if self._indicators:
            named = zip(raw, self._indicators, strict=True)
            ids = [class_numbers(each, name, 2, None) for each, name in named]
            return tf.cast(tf.stack(ids, axis=1), tf.float32)
        raw = present(self.label, raw) if self._list.takes_gaps else raw
        values, rows, count = self._list.values(self.label, raw)
        values = texts(values)
        is_there = tf.not_equal(values, "")
        values, rows = tf.boolean_mask(values, is_there), tf.boolean_mask(rows, is_there)
        ids = places(self.label_vocabulary, self.label).lookup(values)
        unknown = tf.strings.reduce_join(tf.boolean_mask(values, ids < 0)[:1])
        problem = f"the label {self.label} has a value that is not in label_vocabulary: "
        problem = tf.strings.join([problem, unknown])
        ids = checked(ids, tf.reduce_all(ids >= 0), problem)
        return multi_hot(rows, ids, count, len(self.label_vocabulary))

    @property
    def list_features(self) -> Sequence[str]:  # type: ignore[override]
        """The list features of the columns, and the label."""
        is_list = not self._indicators and not self._list.takes_gaps
        return [*super().list_features, *([self.label] if is_list and self.label else [])]

    def value_checks(self) -> Sequence[ValueCheck]:
        """The checks of the columns, and that each label is in the vocabulary, or is 0 or 1."""
        found = [*super().value_checks()]
        known = ["0", "1"] if self._indicators else ["", *self.label_vocabulary]

        def accepts(values: Any) -> Any:
            import tensorflow as tf

            return tf.reduce_any(tf.equal(texts(values)[:, tf.newaxis], known), axis=1)

        if self._indicators:
            for name in self._indicators:
                found.append(ValueCheck(name, "task.args.label", name, "0 or 1", accepts))
        elif self.label:
            split = self._list.of_parts(accepts) if self._list.takes_gaps else accepts
            setting, names = "task.args.label_vocabulary", self.label_vocabulary
            wanted = f"labels that are {', '.join(names)}"
            found.append(ValueCheck(self.label, setting, names, wanted, split))
        return found

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """0 or 1."""
        return draw.integers(0, 2, (count, self._count))

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities``, ``predicted`` (0 or 1), ``label_names``.

        All are ``[batch, labels]``.
        """
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        names = tf.constant(self.label_vocabulary)
        return {
            "logits": logits,
            "probabilities": tf.sigmoid(logits),
            "predicted": tf.cast(logits > 0, tf.int64),
            "label_names": tf.broadcast_to(names, tf.shape(logits)),
        }

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The mean cross entropy of the labels in nats, with ``train.label_smoothing``."""
        return self.per_example(cross_entropy(outputs, targets, dtype, train), targets)

    def metrics(self) -> Sequence[metric.Metric]:
        """``accuracy``, the share of right answers; ``f1`` of all labels together."""
        return (metric.Mean("accuracy", _is_correct), metric.Ratio("f1", _found))

    def constant(self) -> Frequency:
        """The frequency of each label."""
        return Frequency("the frequency of each label")


def _is_correct(outputs: Any, targets: Any) -> Any:
    import tensorflow as tf

    return tf.equal(outputs > 0, tf.cast(targets, tf.float32) > 0.5)


def _found(outputs: Any, targets: Any, dtype: Any) -> tuple[Any, Any]:
    """Twice the hits, and the predicted plus the actual labels, of each example."""
    import tensorflow as tf

    predicted, actual = tf.cast(outputs > 0, dtype), tf.cast(targets, dtype)
    hits = 2 * tf.reduce_sum(predicted * actual, axis=1)
    return hits, tf.reduce_sum(predicted + actual, axis=1)


MULTI_LABEL = MultiLabel({}, "")
