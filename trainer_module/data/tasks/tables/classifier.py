"""The base of tasks whose label is a class: a text, or a number. Imports no TensorFlow."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from stagecraft.common.text import visible
from stagecraft.trainer_module import safe_names
from stagecraft.trainer_module.data.tasks.checks import ClassWeights
from stagecraft.trainer_module.data.tasks.mismatches import (
    Mismatch,
    MismatchError,
    Observed,
    is_number,
)
from stagecraft.trainer_module.data.tasks.tables.column import texts
from stagecraft.trainer_module.data.tasks.tables.columns import line, of_line
from stagecraft.trainer_module.data.tasks.tables.table import Table

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Batch

MOST = 1000
"""Classes that a train split may have; more values are names or measurements, but no classes."""

_SHOWN = 5


class Classifier(Table):
    """A label that names a class.

    Transform finds the classes: the values that the label has in the train split, in the order of
    numbers or else of the alphabet. An example of another split whose label is none of them has the
    weight 0, so that it counts in no loss and no metric.
    """

    class_weights: ClassWeights | None = None
    target_dtype = "int64"

    _keys: Sequence[int | float] | None = None
    """The transformed label of each class, if Transform found the classes."""

    @property
    def _is_own(self) -> bool:
        """Whether the label is this class's business: a subclass may have a ``to_label``."""
        return type(self).to_label is Classifier.to_label

    @property
    @abc.abstractmethod
    def _has_names(self) -> bool:
        """Whether the settings name classes."""

    @abc.abstractmethod
    def _finds_classes(self, kind: str) -> bool:
        """Whether ``to_label`` takes the classes from the train split; ``kind``: of the label."""

    @abc.abstractmethod
    def _label_of_settings(self, values: Any) -> Any:
        """The transformed label ``[batch]`` of classes that the settings give."""

    @abc.abstractmethod
    def classes(self, values: Iterable[str]) -> tuple[str, ...]:
        """The classes in their order.

        Args:
            values: of the label in the train split, each once.

        Raises:
            MismatchError: they are not the classes of this task.
        """

    @property
    def _numbers(self) -> list[str]:
        takes_texts = self._is_own or self._has_names
        return [name for name in super()._numbers if name != self.label or not takes_texts]

    @property
    def categories(self) -> Sequence[str]:  # type: ignore[override]
        """The label."""
        return (self.label,) if self._is_own and self.label else ()

    @property
    def slices(self) -> Sequence[str]:  # type: ignore[override]
        """The label: so the Evaluator measures each class, and counts labels that are none."""
        return self.categories

    def mismatches(
        self, observed: Mapping[str, Observed], train: str = "train"
    ) -> Iterable[Mismatch]:
        """Mismatches of a table, and labels that are no classes of the task."""
        yield from super().mismatches(observed, train)
        found = observed.get(self.label)
        if found is None:
            return
        known = found.values.get(train, found.listed)
        try:
            if not (self._is_own and self._finds_classes(found.kind)):
                self._check_labels(found, known)
            elif known is not None:
                self.weights_of(self.classes(known))
            elif (count := found.unique.get(train, 0)) > MOST:
                raise self._too_many(count)
        except MismatchError as error:
            yield from error.mismatches

    def _too_many(self, count: int) -> MismatchError:
        """The refusal of more labels than :data:`MOST`."""
        use = f"task.name: regression, or a label of at most {MOST:,} values"
        problem = f"has {count:,} values in the train split"
        return self._mismatch("label", self.label, problem, use)

    @abc.abstractmethod
    def _check_labels(self, found: Observed, known: Iterable[str] | None) -> None:
        """Refuses labels that do not fit the classes of the settings.

        Args:
            known: the values in the train split, or those that the schema allows; None: unknown.

        Raises:
            MismatchError: as said.
        """

    def _mismatch(self, setting: str, value: object, problem: str, use: str) -> MismatchError:
        return MismatchError([Mismatch(f"task.args.{setting}", value, self.label, problem, use)])

    def to_label(self, raw: Any) -> Any:
        """The transformed label, ``[batch]``.

        If the settings give the classes, the label follows from them. Otherwise, a number remains
        as it is, and a text becomes its place in a vocabulary, int64; -1: it has none. The
        vocabulary is in the order of the alphabet, backwards, because all weights are equal: a
        place must not change because another class became more frequent.
        """
        import tensorflow as tf
        import tensorflow_transform as tft

        values = tf.reshape(raw, [-1])
        is_text = values.dtype == tf.string
        if not self._finds_classes("BYTES" if is_text else "INT"):
            return self._label_of_settings(values)
        found = line(values) if is_text else texts(values)
        vocabulary = tft.vocabulary(
            found,
            weights=tf.zeros_like(found, tf.float32),
            vocab_filename=vocabulary_of(self.label, is_text),
        )
        return tft.apply_vocabulary(found, vocabulary, default_value=-1) if is_text else values

    def fitted(
        self, features: Mapping[str, Any], vocabulary: Callable[[str], Sequence[bytes]]
    ) -> Self:
        """A copy that knows the classes, if Transform found them."""
        for is_text in (True, False):
            lines = vocabulary(vocabulary_of(self.label, is_text))
            if not lines:
                continue
            places = {of_line(each).decode(errors="replace"): n for n, each in enumerate(lines)}
            found = copy.copy(self)
            names = self.classes(places)
            found.class_names = names
            found.class_weights = self.weights_of(names)
            keys = [places.get(name, len(lines)) for name in names]
            found._keys = keys if is_text else [*map(_number, names)]
            return found
        return self

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """See the base class; an example without class has the weight 0."""
        import numpy as np
        import tensorflow as tf

        batch = super().batch(features, weights)
        if self._keys is None or batch.targets is None:
            return batch
        keys = np.array(self._keys, batch.targets.dtype.as_numpy_dtype)
        equal = tf.cast(tf.equal(batch.targets[:, tf.newaxis], keys), tf.int32)
        targets = tf.cast(tf.argmax(equal, axis=1), self.target_dtype)
        has_class = tf.cast(tf.reduce_max(equal, axis=1), tf.float32)
        return batch._replace(
            targets=targets, weights=None if weights is None else batch.weights * has_class
        )

    def weights_of(self, names: Sequence[str]) -> Sequence[float] | None:
        """``class_weights`` as a number for each class.

        Raises:
            MismatchError: there is another number of weights, or a name is no class.
        """
        given = self.class_weights
        if given is None:
            return None
        if not isinstance(given, Mapping):
            if len(given) != len(names):
                problem = f"are not {len(names)} weights, for {listed(names)}"
                raise self._mismatch("class_weights", given, problem, str([1] * len(names)))
            return tuple(given)
        for name in given:
            if str(name) not in names:
                use = f"some of {listed(names)}"
                raise self._mismatch("class_weights", name, "names no class", use)
        return tuple({str(name): each for name, each in given.items()}.get(n, 1.0) for n in names)

    def output_text(self, class_names: Sequence[str]) -> str:
        """The classes, if they have names."""
        names = class_names or self.class_names
        return f"one of {len(names)} classes: {listed(names)}" if names else self.description


def vocabulary_of(label: str, is_text: bool) -> str:
    """Name of the vocabulary of a label's classes."""
    return safe_names.safe(f"{label}_{'texts' if is_text else 'numbers'}_of_classes")


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def ordered(values: Iterable[str]) -> tuple[str, ...]:
    """Values in the order of numbers, if all are numbers, else of the alphabet."""
    given = sorted(values)
    return tuple(sorted(given, key=float) if all(map(is_number, given)) else given)


def listed(names: Iterable[str]) -> str:
    """Some names in a message."""
    shown = [visible(name)[:40] for name in names]
    return ", ".join(shown[:_SHOWN]) + (
        f" and {len(shown) - _SHOWN} more" if shown[_SHOWN:] else ""
    )
