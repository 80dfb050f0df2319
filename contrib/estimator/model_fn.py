"""A ``model_fn`` as task and model. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError, UserError
from stagecraft.contrib.estimator.spec import WEIGHTS
from stagecraft.trainer_module.data.tasks import checks, metric
from stagecraft.trainer_module.data.tasks.tables.column import Column, dense
from stagecraft.trainer_module.data.tasks.tables.table import Table
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Spec

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.settings import TrainSettings


@dataclasses.dataclass(frozen=True)
class Tensor(Column):
    """A raw feature as it is: ``[batch, *shape]``. Each example has all of its values."""

    needs_numbers = False

    shape: Sequence[int] = ()
    dtype: str = "float32"

    @property
    def takes_gaps(self) -> bool:
        """Each example has all values."""
        return False

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """One input."""
        return {name: None}

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """The values."""
        import tensorflow as tf

        if isinstance(raw, tf.sparse.SparseTensor):
            raw = dense(raw, "" if raw.dtype == tf.string else 0)
        return {name: tf.cast(tf.reshape(raw, [-1, *self.shape]), self.dtype)}


class ModelFnTask(Table):
    """The loss, metrics and predictions that a ``model_fn`` returns."""

    name = "model_fn"
    description = "what a model_fn returns"
    smooths = False

    def __init__(
        self,
        features: Mapping[str, Any],
        label: str,
        label_dtype: str,
        metrics: Mapping[str, str],
    ):
        """See :func:`from_model_fn`."""
        super().__init__(features, label)
        self.label_dtype, self.metric_modes = label_dtype, dict(metrics)
        self.monitor = next(iter(metrics), "loss")

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """Features, label and weights by name."""
        specs = dict(super().input_specs(arguments))
        for name, each in self.columns.items():
            if isinstance(each, Tensor):
                specs[name] = Spec(each.shape, each.dtype)
        return specs | {self.label: Spec((), self.label_dtype), WEIGHTS: Spec(())}

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """The label and the weights are inputs as well: ``model_fn`` computes the loss."""
        import tensorflow as tf

        batch = super().batch(features, weights)
        count = tf.shape(next(iter(batch.inputs.values())))[:1]
        ones = tf.ones(count) if weights is None else weights
        label = tf.zeros(count) if batch.targets is None else batch.targets
        label = tf.cast(label, self.label_dtype)
        return batch._replace(inputs={**batch.inputs, self.label: label, WEIGHTS: ones})

    def noise(
        self, arguments: ModelArguments, count: int, draw: np.random.Generator
    ) -> tuple[Nest, Nest]:
        """Normal numbers, any ids, and labels 0 and 1."""
        import numpy as np

        inputs, labels = super().noise(arguments, count, draw)
        for name, spec in self.input_specs(arguments).items():
            if name not in inputs or inputs[name].shape[1:] != spec.shape:
                values = draw.standard_normal((count, *spec.shape))
                inputs[name] = values.astype(spec.dtype)
        labels = labels.astype(self.label_dtype)
        weights = np.ones(count, np.float32)
        return inputs | {self.label: labels, WEIGHTS: weights}, labels

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """0 and 1."""
        return draw.integers(0, 2, count)

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses a model that is no ``model_fn``, and losses of another shape."""
        if not isinstance(outputs, Mapping) or "losses" not in outputs:
            raise UserError(
                f"train.model: {name} is not the model of from_model_fn; use its attribute model",
                setting="train.model",
                value=name,
            )
        shape = tuple(outputs["losses"].shape)
        if shape != (3,):
            raise UserError(
                f"model_fn: the loss has shape {shape} for a batch of 3; return a scalar or "
                "[batch]",
                setting="train.model",
                value=name,
            )

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The loss that ``model_fn`` returns."""
        import tensorflow as tf

        found = outputs["losses"]
        return found if found.dtype == tf.float64 else tf.cast(found, dtype)

    def metrics(self) -> Sequence[metric.Metric]:
        """The means of what ``eval_metric_ops`` returns."""
        return [
            metric.Mean(name, _MetricOf(name), higher_is_better=mode == "max")
            for name, mode in self.metric_modes.items()
        ]

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """The predictions of ``model_fn``."""
        return dict(outputs["predictions"])


@dataclasses.dataclass(frozen=True)
class _MetricOf:
    name: str

    def __call__(self, outputs: Any, targets: Any) -> Any:
        return outputs["metrics"][self.name]


@dataclasses.dataclass(frozen=True)
class ModelFn:
    """A ``model_fn`` with its task; ``model`` is a value of ``train.model``."""

    task: ModelFnTask
    model: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class _Build:
    """Returns a new ``keras.Model``."""

    task: ModelFnTask
    model_fn: Callable[..., Any]
    params: Mapping[str, Any]

    def __call__(self, outputs: int, **inputs: Any) -> Any:
        from stagecraft.contrib.estimator.model_fn_model import ModelFnModel

        task = self.task
        specs = task.input_specs(inputs)
        names = tuple(task.metric_modes)
        return ModelFnModel(self.model_fn, self.params, task.label, names, specs)


def from_model_fn(
    model_fn: Callable[..., Any],
    params: Mapping[str, Any] = MappingProxyType({}),
    *,
    features: Mapping[str, Any],
    labels: str,
    label_dtype: str = "float32",
    metrics: Mapping[str, str] = MappingProxyType({}),
) -> ModelFn:
    """A ``model_fn`` of Estimators as task and model, for strategies of replicas.

    ``model_fn(features, labels, mode, params)`` returns an :class:`EstimatorSpec`, and creates its
    weights by Keras layers, ``tf.Variable`` or ``tf.compat.v1.get_variable``. It runs in each mode
    when the model is built, and then once for each trace.

    Args:
        features: columns by name; :class:`Tensor` for a feature as it is. ``model_fn`` gets
            ``[batch, 1]``, or the shape of a ``Tensor``.
        labels: raw feature with the label; ``model_fn`` gets ``[batch]``.
        label_dtype: of the labels that ``model_fn`` gets.
        metrics: names in ``eval_metric_ops``, each with ``max`` or ``min`` for the better values.
            The first one chooses the best checkpoint; without any, the loss does.

    Raises:
        SettingError: an argument is invalid.
    """
    function: Any = model_fn
    if not callable(function):
        problem, use = "is not a function", "a function of features, labels, mode and params"
        raise SettingError("model_fn", model_fn, problem, use)
    checks.of_type("metrics", metrics, Mapping, "is not a mapping", '{"accuracy": "max"}')
    for name, mode in metrics.items():
        if mode not in ("max", "min"):
            raise SettingError(f"metrics: {name}", mode, "is neither max nor min", "max")
    task = ModelFnTask(features, labels, label_dtype, metrics)
    return ModelFn(task, _Build(task, model_fn, dict(params)))
