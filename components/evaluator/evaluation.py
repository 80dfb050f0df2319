"""An evaluation, as plain data; and whether a model is better than a constant.

Imports nothing heavy. The latter is a one-sided test: see :func:`confidence` for tasks with a
``class_label``, and :class:`Comparison` for other tasks with a constant.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stagecraft.trainer_module.data.tasks.task import Task

ACCURACY, TOP_3, LOSS = "accuracy", "top_3_accuracy", "loss"
CALIBRATION_ERROR = "expected_calibration_error"
EXAMPLE_COUNT = "example_count"
MONITOR, NOUN = "monitor", "noun"
"""Properties of a model, also of metrics: the metric that people look at first, if not accuracy;
what they call the examples, if not images."""

MISTAKES = "most_confidently_wrong"
"""The metric whose value is the text of some :class:`Mistake`, of ``MostConfidentlyWrong``."""

SAMPLED = "sampled_predictions"
"""The metric whose value is the text of ``SampledPredictions``."""

PRECISION, RECALL, F1 = "precision", "recall", "f1"
AT_THRESHOLDS = "confusion_at_thresholds"
"""The metric whose value are TFMA's confusion matrices of a :func:`binary <is_binary>` task."""

THRESHOLD = 0.5
"""The probability above which an example counts as positive in the metrics of a binary task."""

TOP_LABEL_CALIBRATION = "top_label_calibration"
"""The plot of the calibration."""

IMAGES = "images"

FINITE = 1e300
"""A bound that every finite metric keeps."""

MIN, MAX = "min", "max"
Bounds = Mapping[str, float]
"""``min`` and ``max`` of a metric, for a blessing; one may be missing."""

BETTER_THAN_CONSTANT = "better_than_constant"  # name of the setting and of the metric
ENOUGH = 0.95  # confidence from which a model counts as better


COMPARISON = "comparison_with_constant"
"""The metric whose value is the text of a :class:`Comparison`."""


class Mistake(NamedTuple):
    """A misclassified example."""

    confidence: float  # probability of ``predicted``; the first field, so that mistakes sort by it
    id: int
    actual: int
    predicted: int
    probability: float  # of ``actual``


def read_mistakes(text: str) -> list[Mistake]:
    """The value of the metric ``MISTAKES``, most confident first."""
    return [Mistake(*row) for row in json.loads(text)]


def read_sampled(text: str) -> dict[str, list[float]]:
    """The value of the metric ``SAMPLED``: numbers by name, and ``weight``."""
    columns: dict[str, list[float]] = json.loads(text)
    return columns


class CalibrationBin(NamedTuple):
    """Predictions of similar confidence."""

    examples: int
    accuracy: float  # share of the predictions that are correct
    confidence: float


class Confusions(NamedTuple):
    """Weights of the examples by class and answer, at one threshold of the probability."""

    threshold: float
    true_positives: float
    false_positives: float
    true_negatives: float
    false_negatives: float

    @property
    def precision(self) -> float:
        """Share of the positive answers that are right."""
        return _share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float:
        """Share of the positives that the model finds."""
        return _share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        wrong = self.false_positives + self.false_negatives
        return _share(2 * self.true_positives, 2 * self.true_positives + wrong)

    @property
    def false_positive_rate(self) -> float:
        """Share of the negatives that the model takes for positives."""
        return _share(self.false_positives, self.false_positives + self.true_negatives)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


class Slice(NamedTuple):
    """The metrics of the examples with one value of a feature."""

    feature: str
    value: str
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The Evaluator's results on the eval split."""

    metrics: dict[str, float]
    """Overall. Of classes: accuracy, top_3_accuracy, loss, example_count,
    expected_calibration_error, better_than_constant. Otherwise: the task's, loss, example_count;
    better_than_constant if the task has a constant."""
    changes: dict[str, float]
    """The same metrics, minus those of the last blessed model; empty without one."""
    per_class: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
    """The same metrics per label."""
    confusion: list[list[int]]  # ``[actual][predicted]`` example counts, square
    calibration: list[CalibrationBin]  # by confidence, without empty bins
    mistakes: list[Mistake]
    """Most confident first; empty without the metric ``MostConfidentlyWrong``."""
    thresholds: dict[str, Bounds]  # by metric
    failures: list[str]  # why the model is not blessed, a sentence each; empty if it is
    monitor: str = ACCURACY  # the metric that people look at first
    slices: Sequence[Slice] = ()  # other than the classes
    sampled: Mapping[str, list[float]] = dataclasses.field(default_factory=dict)
    """Numbers of some examples, by name: see ``Task.sampled``."""
    comparison: str = ""
    """By how much the model is better than a constant, or is not; empty: it was not compared."""
    at_thresholds: Sequence[Confusions] = ()
    """Of a binary task, by threshold."""


UNDEFINED = "–"
"""In place of a metric that is not a number."""


def number(value: float, digits: int = 4) -> str:
    """A metric with some digits: ``0.1234``, ``1.235e+06``; ``–`` if it is undefined."""
    if math.isnan(value):
        return UNDEFINED
    is_plain = not value or 10**-digits <= abs(value) < 1e4
    return f"{value:.{digits}{'f' if is_plain else 'g'}}"


def short(value: float) -> str:
    """A metric with three digits: ``0.123``, ``1.23e+06``."""
    return number(value, 3)


def metric_names(task: Task) -> tuple[str, ...]:
    """The metrics that can have a threshold, the task's ``monitor`` first."""
    if task.class_label is not None:
        return (ACCURACY, TOP_3, LOSS, CALIBRATION_ERROR)
    names = (*(metric.name for metric in task.metrics()), LOSS)
    ranked = sorted(names, key=lambda name: name != task.monitor)
    return (*ranked, *binary_metrics(task))


def binary_metrics(task: Task) -> tuple[str, ...]:
    """Metrics at :data:`THRESHOLD` that the Evaluator adds; those of the task's own stay."""
    if not is_binary(task):
        return ()
    own = {metric.name for metric in task.metrics()}
    return tuple(name for name in (PRECISION, RECALL, F1) if name not in own)


def is_binary(task: Task) -> bool:
    """Whether ``Task.sampled`` gives a probability and the actual class, 0 or 1."""
    return "binary" in task.report_sections


def confidence(num_correct: int, most_frequent: int, examples: int) -> float:
    """Confidence, 0 to 1, that an accuracy is above the share of the most frequent label.

    It is ``P(X < num_correct)`` for X from Binomial(examples, most_frequent / examples): an exact
    test. A confidence of 95 % means that the lower 95 % bound of the accuracy is at least this
    share (Clopper and Pearson 1934, "The use of confidence or fiducial limits illustrated in the
    case of the binomial", Biometrika 26).
    """
    from scipy import special  # TFMA depends on it

    if not num_correct:
        return 0.0
    return float(special.bdtr(num_correct - 1, examples, most_frequent / examples))


class Comparison(NamedTuple):
    """Values of a model and of a constant for the same examples, in which one metric decides."""

    metric: str
    answer: str  # of the constant: ``Constant.answer``
    model: float
    constant: float
    confidence: float  # 0 to 1, that the model is better

    @classmethod
    def of(cls, task: Task, sums: Iterable[float], metrics: Mapping[str, Any]) -> Comparison:
        """The comparison of a task that has a constant: a one-sided test.

        If ``Metric.against_constant`` of the metric ``monitor`` tells, it decides; that of another
        metric can only refuse. Otherwise, the test is paired. If each difference is 0, or a whole
        answer, and each weight 1, it is the exact sign test of the answers that only one of both
        has right. Otherwise it is Student's t-test of the mean difference;
        ``weights ** 2 / squared weights`` examples count (Kish 1965, "Survey Sampling",
        section 11.7).

        Args:
            sums: of ``task_metric._PairedSums``.
            metrics: name -> the sums of its terms.
        """
        from scipy import special

        decisive, of_constant = task.decisive_metric(), task.constant()
        assert of_constant is not None
        own, own_squared, weight, squared, model, other, differences, squares, won, lost, whole = (
            sums
        )
        if not weight > 0:
            name = decisive.name if decisive else LOSS
            return cls(name, of_constant.answer, math.nan, math.nan, 0.0)
        for each in task.metrics():
            against = each.against_constant(metrics[each.name], own**2 / own_squared)
            if against is not None and (each.name == task.monitor or not against[1] > 0):
                value = each.result(metrics[each.name])
                return cls(each.name, of_constant.answer, value, *against)
        values = model / weight, other / weight
        sign = 1 if decisive is not None and decisive.higher_is_better else -1
        mean, count = sign * (values[0] - values[1]), weight**2 / squared
        if sign < 0:
            won, lost = lost, won
        found = 0.0
        if mean > 0 and whole:
            found = float(special.bdtr(won - 1, int(won + lost), 0.5))
        elif mean > 0 and count > 1:
            # The sums of differences and squares have the factor weight ** 2.
            spread = squares - 2 * sign * mean * differences + mean**2 * squared
            error = math.sqrt(max(spread, 0.0) * count / (count - 1)) / weight
            found = float(special.stdtr(count - 1, mean / error)) if error else 1.0
        name = decisive.name if decisive else LOSS
        return cls(name, of_constant.answer, *values, found if found > 0 else 0.0)
