"""One of several classes to predict from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks import checks, metric, softmax
from stagecraft.trainer_module.data.tasks.constant import Frequencies
from stagecraft.trainer_module.data.tasks.mismatches import Observed
from stagecraft.trainer_module.data.tasks.tables.classifier import (
    MOST,
    Classifier,
    listed,
    ordered,
)
from stagecraft.trainer_module.data.tasks.tables.column import (
    Column,
    ValueCheck,
    checked,
    places,
    texts,
    whole,
)

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest
    from stagecraft.trainer_module.settings import TrainSettings


class Classification(Classifier):
    """Softmax cross entropy of a logit for each class."""

    name = "classification"
    description = "one of several classes from columns of a table"
    monitor = "accuracy"
    report_sections = ("confusions", "features")

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        num_classes: int | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        class_weights: checks.ClassWeights | None = None,
    ):
        """Declares the columns; see :class:`Table`.

        Args:
            label: a text or a number. Its values in the train split are the classes, in the order
                of numbers or else of the alphabet.
            num_classes: how many classes there are; a label that is a number is then that of its
                class, from 0. None: as many as the label has values.
            label_vocabulary: the texts or integers that are labels, in the order of the classes.
            class_weights: factors of the training's loss: a list in the order of the classes, or a
                mapping from values of the label; None: 1.

        Raises:
            SettingError: an argument is invalid.
        """
        self.label_vocabulary = None if label_vocabulary is None else tuple(label_vocabulary)
        if num_classes is None and self.label_vocabulary is not None:
            num_classes = len(self.label_vocabulary)
        if num_classes is not None:
            checks.whole("task.args.num_classes", num_classes, 2)
        if self.label_vocabulary is not None and len(set(self.label_vocabulary)) != num_classes:
            problem = f"are not {num_classes} different values"
            use = "as many as task.args.num_classes, or without the latter"
            raise SettingError("task.args.label_vocabulary", label_vocabulary, problem, use)
        given = checks.class_weights(class_weights, num_classes)
        self._count = num_classes
        self.num_classes = num_classes or max(2, len(given or ()))
        super().__init__(features, label, weight, self.num_classes)
        self.class_weights = given
        if self.label_vocabulary is not None:
            self._listed = self.class_names = tuple(map(str, self.label_vocabulary))
        elif num_classes is not None:
            self._listed = tuple(map(str, range(num_classes)))
        if isinstance(given, Mapping) and self._listed is not None:
            self.class_weights = self.weights_of(self._listed)

    _listed: Sequence[str] | None = None
    """The labels of the classes, if the settings say them: values, or numbers of classes."""

    @property
    def _has_names(self) -> bool:
        return self.label_vocabulary is not None

    def _finds_classes(self, kind: str) -> bool:
        is_named = self._count is None or kind == "BYTES"
        return self._is_own and is_named and not self._has_names

    def classes(self, values: Iterable[str]) -> tuple[str, ...]:
        """All values, in order."""
        names = ordered(values)
        if self._count not in (None, len(names)):
            problem = f"does not fit the {len(names)} labels of the train split, {listed(names)}"
            use = str(max(2, len(names)))
            raise self._mismatch("num_classes", self._count, problem, use)
        if len(names) > MOST:
            raise self._too_many(len(names))
        if len(names) < 2:
            problem, use = f"has one value alone in the train split, {listed(names)}", "two or more"
            raise self._mismatch("label", self.label, problem, use)
        return names

    def _check_labels(self, found: Observed, known: Iterable[str] | None) -> None:
        labels = self._listed
        if labels is None or found.kind == "FLOAT":
            return
        of_splits = dict(found.values) or {"schema": dict.fromkeys(known or (), 0)}
        for split, values in of_splits.items():
            wrong = [each for each in ordered(values) if each not in labels]
            if not wrong:
                continue
            names = ordered({*values, *labels})
            problem = f"lacks {listed(wrong)}, which {self.label} has in the split {split}"
            if self.label_vocabulary is not None:
                use = str(list(names))
                raise self._mismatch("label_vocabulary", listed(labels), problem, use)
            raise self._mismatch("num_classes", self._count, problem, "no num_classes")

    def value_checks(self) -> Sequence[ValueCheck]:
        """Checks of the columns, and of decimal labels, which must be classes of the settings."""
        found, labels = [*super().value_checks()], self._listed
        if self._is_own and labels is not None:
            is_named = self.label_vocabulary is not None
            setting, value = (
                ("label_vocabulary", labels) if is_named else ("num_classes", self._count)
            )
            wanted = f"labels that are {listed(labels)}"
            accepts = among(labels)
            found.append(ValueCheck(self.label, f"task.args.{setting}", value, wanted, accepts))
        return found

    def fitted(
        self, features: Mapping[str, Any], vocabulary: Callable[[str], Sequence[bytes]]
    ) -> Self:
        """See the base class; a copy with as many outputs as classes."""
        found = super().fitted(features, vocabulary)
        if found is self:
            if self._count is None and self._is_own:
                problem = "is needed, because Transform has no vocabulary of the label's classes"
                use = "num_classes, or the features that the method preprocess of the task returns"
                raise SettingError("task.args.num_classes", None, problem, use)
            return self
        found.num_classes = len(found.class_names or ())
        found._arguments = {**self._arguments, "outputs": found.num_classes}
        return found

    def _label_of_settings(self, values: Any) -> Any:
        """The number of the class, int64; a label that is no class is an error."""
        return class_numbers(values, self.label, self.num_classes, self.label_vocabulary)

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Numbers of classes."""
        return draw.integers(0, self.num_classes, count)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities``, ``class_id``; ``class_name``, if classes have names."""
        return softmax.named_outputs(outputs, self.class_names)

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The cross entropy in nats, with ``train.label_smoothing``."""
        return softmax.cross_entropy(outputs, _classes(targets), dtype, train)

    def training_weights(self, targets: Nest, dtype: Any) -> Any:
        """The weight of the label's class."""
        import tensorflow as tf

        if self.class_weights is None or isinstance(self.class_weights, Mapping):
            return None  # names without classes: the model is not trained here
        return tf.gather(tf.constant(self.class_weights, dtype), _classes(targets))

    def metrics(self) -> Sequence[metric.Metric]:
        """The share of the examples whose largest logit is their label's."""
        return (metric.Mean("accuracy", _is_correct),)

    def sampled(self, outputs: Nest, targets: Nest) -> Mapping[str, Any]:
        """``predicted`` and ``actual``, numbers of classes."""
        import tensorflow as tf

        return {"predicted": tf.argmax(outputs, axis=-1), "actual": targets}

    def constant(self) -> Frequencies:
        """The most frequent class, and the frequencies."""
        return Frequencies(self.num_classes, "the most frequent class")


def among(labels: Sequence[str]) -> Callable[[Any], Any]:
    """A check of decimal numbers, which statistics do not count one by one."""

    def accepts(values: Any) -> Any:
        import tensorflow as tf

        if not values.dtype.is_floating:  # `mismatches` has checked them
            return tf.ones_like(values, tf.bool)
        return tf.reduce_any(tf.equal(texts(values)[:, tf.newaxis], list(labels)), axis=1)

    return accepts


def class_numbers(raw: Any, label: str, count: int, vocabulary: Sequence[Any] | None) -> Any:
    """The numbers of classes, int64 ``[batch]``; a label that is no class is an error.

    Args:
        raw: the labels: numbers, or values of the vocabulary.
        label: name of the raw feature.
    """
    import tensorflow as tf

    values = tf.reshape(raw, [-1])
    if vocabulary is None:
        numbers, is_whole = whole(values)
        is_class = is_whole & (numbers >= 0) & (numbers < count)
    else:
        numbers = places(vocabulary, label).lookup(texts(values))
        is_class = numbers >= 0
    wrong = tf.strings.reduce_join(texts(tf.boolean_mask(values, ~is_class)[:1]))
    problem = tf.strings.join([f"the label {label} has a value that is no class: ", wrong])
    return checked(numbers, tf.reduce_all(is_class), problem)


def _is_correct(outputs: Any, targets: Any) -> Any:
    return softmax.is_correct(outputs, _classes(targets))


def _classes(targets: Any) -> Any:
    import tensorflow as tf

    return tf.cast(targets, tf.int64)


CLASSIFICATION = Classification({}, "")
