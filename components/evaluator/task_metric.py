"""The metrics of any task, from the sums of the exported model's signature ``evaluation``.

The model itself computes each example's loss and ``Metric.terms``. So a training and the Evaluator
compute a metric with the same code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    confusion_matrix_metrics as of_tfma,
    metric_types,
)
from tensorflow_model_analysis.metrics.metric_types import MetricKey

from stagecraft.components.evaluator.evaluation import (
    AT_THRESHOLDS,
    BETTER_THAN_CONSTANT,
    COMPARISON,
    EXAMPLE_COUNT,
    F1,
    LOSS,
    PRECISION,
    RECALL,
    SAMPLED,
    THRESHOLD,
    Comparison,
)
from stagecraft.components.evaluator.example_metric import Combiner, combined, per_key
from stagecraft.trainer_module.data.tasks.metric import Metric
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import TaskSettings

KEPT = 2000
"""Examples of which :class:`SampledPredictions` keeps numbers."""

_PREFIX = "sampled_"

_THRESHOLDS = [number / 10 for number in range(1, 10)]
_AT_THRESHOLD = {
    PRECISION: of_tfma.Precision,
    RECALL: of_tfma.Recall,
    F1: of_tfma.F1Score,
}

Sums = np.ndarray
"""float64 ``[2 + sizes of all metrics]``, weighted sums: weights, losses, terms of each metric."""


class TaskMetric(metric_types.Metric):
    """A metric of a task, or its mean loss; of all examples, or of a slice."""

    def __init__(self, name: str, task: Mapping[str, Any]):
        """Refers to a metric; ``task``: JSON of ``TaskSettings``, for workers of Beam to find."""

        def compute(key: MetricKey, config: Any) -> metric_types.MetricComputations:
            sums_key = key._replace(name="_task_sums")
            sums = combined(sums_key, config, _SumsCombiner)

            def result(metrics: dict[MetricKey, Sums]) -> dict[MetricKey, float]:
                return {key: _value(name, task, metrics[sums_key])}

            return [sums, metric_types.DerivedMetricComputation(keys=[key], result=result)]

        super().__init__(per_key(compute), name=name)
        self._task = task

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        config: dict[str, Any] = super().get_config()
        return config | {"task": self._task}


class TaskBetterThanConstant(TaskMetric):
    """Confidence, 0 to 1, that a model is better than the constant of its task.

    It is 0 where a value is not a finite number. Also gives the text of the ``Comparison``.
    """

    def __init__(self, task: Mapping[str, Any], name: str = BETTER_THAN_CONSTANT):
        """Refers to the task; see :class:`TaskMetric`."""

        def compute(key: MetricKey, config: Any) -> metric_types.MetricComputations:
            keys = [key, key._replace(name=COMPARISON)]
            paired, sums = (key._replace(name=name) for name in ("_paired_sums", "_task_sums"))
            of_examples = [
                combined(paired, config, _PairedSums),
                combined(sums, config, _SumsCombiner),
            ]

            def result(metrics: dict[MetricKey, Sums]) -> dict[MetricKey, Any]:
                found: Task = TaskSettings.model_validate(task).found
                terms = dict(_terms(found.metrics(), metrics[sums]))
                compared = Comparison.of(found, metrics[paired].tolist(), terms)
                return dict(zip(keys, (compared.confidence, json.dumps(compared)), strict=True))

            return [*of_examples, metric_types.DerivedMetricComputation(keys=keys, result=result)]

        metric_types.Metric.__init__(self, per_key(compute), name=name)
        self._task = task


class SampledPredictions(metric_types.Metric):
    """The numbers of ``Task.sampled`` for some examples, as text: see ``read_sampled``.

    These are the examples with the least hashes, however the examples are spread over workers.
    """

    def __init__(self, name: str = SAMPLED):
        super().__init__(_of(_SampleCombiner), name=name)


class NonzeroExampleCount(metric_types.Metric):
    """The number of examples whose weight is not 0, of all examples or of a slice."""

    def __init__(self, name: str = EXAMPLE_COUNT):
        super().__init__(_of(_CountCombiner), name=name)


class BinaryMetric(metric_types.Metric):
    """TFMA's precision, recall or F1 at a probability of 0.5, or confusion matrices at several.

    TFMA's own classes read one label and one prediction; the signature gives ``sampled_actual`` and
    ``sampled_probability``. An example whose probability is no number counts nowhere.
    """

    def __init__(self, name: str):
        """``name``: ``precision``, ``recall``, ``f1``, or the name of the matrices."""

        def compute(key: MetricKey, config: Any) -> metric_types.MetricComputations:
            matrices = binary_confusion_matrices.binary_confusion_matrices(
                thresholds=_THRESHOLDS,
                name=AT_THRESHOLDS,
                eval_config=config,
                model_name=key.model_name,
                output_name=key.output_name,
                example_weighted=key.example_weighted,
                extract_label_prediction_and_weight=_actual_and_probability,
            )
            if name == AT_THRESHOLDS:
                return matrices
            of, at = matrices[-1].keys[-1], _THRESHOLDS.index(THRESHOLD)

            def result(metrics: dict[MetricKey, Any]) -> dict[MetricKey, float]:
                found = metrics[of]
                counts = (found.tp[at], found.tn[at], found.fp[at], found.fn[at])
                return {key: _AT_THRESHOLD[name]().result(*counts)}

            return [*matrices, metric_types.DerivedMetricComputation(keys=[key], result=result)]

        super().__init__(per_key(compute), name=name)


for each in (
    TaskMetric, TaskBetterThanConstant, SampledPredictions, NonzeroExampleCount, BinaryMetric
):  # fmt: skip
    metric_types.register_metric(each)


def _of(combiner: type[Combiner]) -> Callable[..., metric_types.MetricComputations]:
    """The computations of a metric whose value is what a combiner extracts."""
    return per_key(lambda key, config: [combined(key, config, combiner)])


def _actual_and_probability(
    element: metric_types.StandardMetricInputs, *, model_name: str = "", **_: Any
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Label, prediction and weight of an example, ``[1]`` each, as TFMA's matrices want them."""
    outputs = element.get_predictions(model_name)
    names = (f"{_PREFIX}actual", f"{_PREFIX}probability", "weights")
    if all(name in outputs for name in names):  # not of a model that another run_fn exported
        actual, probability, weight = (np.ravel(outputs[name]).astype(np.float64) for name in names)
        if np.isfinite(probability).all():
            yield actual, probability, weight


def _value(name: str, task: Mapping[str, Any], sums: Sums) -> float:
    if not sums.ndim:  # no examples
        return float("nan")
    weight, loss, *_ = sums
    if name == LOSS:
        return float(loss / weight) if weight else float("nan")
    metrics: Sequence[Metric] = TaskSettings.model_validate(task).found.metrics()
    terms = dict(_terms(metrics, sums))
    [metric] = (each for each in metrics if each.name == name)
    return metric.result(terms[name])


def _terms(metrics: Iterable[Metric], sums: Sums) -> Iterator[tuple[str, np.ndarray]]:
    """The sums of each metric by its name; none without examples."""
    start = 2
    for metric in metrics:
        yield metric.name, sums[start : start + metric.size] if sums.ndim else sums
        start += metric.size


class _Combiner(Combiner):
    """Base of combiners of the signature's outputs."""

    def _outputs(self, element: metric_types.StandardMetricInputs) -> dict[str, np.ndarray]:
        """The outputs for one example, flat."""
        outputs = element.get_predictions(self._key.model_name)
        return {name: np.ravel(value) for name, value in outputs.items()}


class _SumsCombiner(_Combiner):
    def create_accumulator(self) -> Sums:
        return np.zeros([])  # of any length, until the first example

    def add_input(self, accumulator: Sums, element: metric_types.StandardMetricInputs) -> Sums:
        outputs = self._outputs(element)
        terms = outputs.get("metrics", np.zeros(0))
        weight = outputs["weights"].astype(np.float64)
        return accumulator + weight * np.concatenate([[1.0], outputs["loss"], terms])

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        merged = self.create_accumulator()
        for sums in accumulators:
            merged = merged + sums
        return merged


class _CountCombiner(_Combiner):
    def create_accumulator(self) -> float:
        return 0.0

    def add_input(self, accumulator: float, element: metric_types.StandardMetricInputs) -> float:
        return accumulator + float(self._outputs(element)["weights"].any())

    def merge_accumulators(self, accumulators: Iterable[float]) -> float:
        return sum(accumulators)


class _PairedSums(_Combiner):
    """Sums over the examples of the signature's output ``constant``.

    float64 ``[11]``: weights of the examples, and their squares; weights in the comparison, and
    their squares; weighted values of the model, and of the constant; differences of both, and their
    squares, with the squared weight; examples in which the model's value is greater, and in which
    it is less; and, a product, whether each difference is -1, 0 or 1 and each weight 1.
    """

    def create_accumulator(self) -> Sums:
        return np.array([0.0] * 10 + [1.0])

    def add_input(self, accumulator: Sums, element: metric_types.StandardMetricInputs) -> Sums:
        outputs = self._outputs(element)
        if "constant" not in outputs:  # of a model that another run_fn exported
            return accumulator * np.nan
        weight, model, constant = outputs["constant"].astype(np.float64)
        if not weight:
            return accumulator
        (own,) = outputs["weights"].astype(np.float64)
        square, difference = weight**2, model - constant
        accumulator[:10] += (
            *(own, own**2, weight, square, weight * model, weight * constant),
            *(square * difference, square * difference**2, difference > 0, difference < 0),
        )
        accumulator[10] *= weight == 1 and difference in (-1, 0, 1)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        given = np.stack([self.create_accumulator(), *accumulators])
        return np.append(given[:, :10].sum(axis=0), given[:, 10].prod())


Row = tuple[int, dict[str, float]]


class _SampleCombiner(_Combiner):
    def create_accumulator(self) -> list[Row]:
        return []

    def add_input(
        self, accumulator: list[Row], element: metric_types.StandardMetricInputs
    ) -> list[Row]:
        outputs = self._outputs(element)
        numbers = {
            name.removeprefix(_PREFIX): float(value[0])
            for name, value in outputs.items()
            if name.startswith(_PREFIX)
        }
        row = (int(outputs["key"][0]), numbers | {"weight": float(outputs["weights"][0])})
        accumulator.append(row)
        return accumulator if len(accumulator) < 2 * KEPT else _least(accumulator)

    def merge_accumulators(self, accumulators: Iterable[list[Row]]) -> list[Row]:
        return _least([row for rows in accumulators for row in rows])

    def extract_output(self, accumulator: list[Row]) -> dict[MetricKey, Any]:
        rows = [numbers for _, numbers in _least(accumulator)]
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return super().extract_output(json.dumps(columns))


def _least(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], *row[1].values()))[:KEPT]
