"""The task of a caller's data: inputs, targets, losses and metrics as Keras has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft import pickles
from stagecraft.objects import losses, metrics
from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.metric import Mean, Metric
from stagecraft.trainer_module.data.tasks.task import Task


class GivenTask(Task):
    """Targets of a batch are ``(y,)``, or ``(y, sample_weight)``.

    The weight of an example in a :class:`Batch` is 0 for padding. In a short batch, the others have
    a greater weight than 1, so that the loss is the mean over the examples that are there.
    """

    name = "given"
    description = "arrays or a dataset, with a loss and metrics of Keras"
    monitor = "loss"
    needs_schema = False
    schema_features: Sequence[str] = ()
    features = ("x", "y")
    served_features = ("x",)

    def __init__(
        self,
        inputs: Any,
        targets: Any,
        *,
        loss: Any,
        metrics: Any = (),
        output_names: Sequence[str] = (),
        examples: Any = None,
    ):
        """Checks loss and metrics.

        Args:
            inputs: ``Spec`` of the model's inputs, or a structure of them.
            targets: the same of ``y``; None: not known, and the loss is checked later.
            output_names: of the outputs of a functional model.
            examples: three inputs; None: not known.

        Raises:
            SettingError: the loss or a metric is not the mean of a value for each example.
        """
        self._inputs, self._targets = inputs, targets
        self.probe_inputs = examples
        self._loss, self._given = loss, () if metrics is None else metrics
        self._names = tuple(output_names)
        losses.check_loss(loss)
        for argument, given in (("loss", loss), ("metrics", self._given)):
            losses.check_outputs(argument, given, self._names)
        self._metrics = [*self._made(), RowCount()]
        names = ["loss", *(metric.name for metric in self._metrics)]
        for name in names:
            if names.count(name) > 1:
                use = "another name, such as keras.metrics.MeanAbsoluteError(name='error')"
                raise SettingError("metrics", name, "is the name of two numbers", use)
        self.check_metrics()

    def get_config(self) -> Mapping[str, Any]:
        """What the task's name among given objects depends on."""
        parts = {"loss": self._loss, "metrics": self._given}
        specs = [each for each in tf.nest.flatten([self._inputs, self._targets]) if each]
        return {
            "specs": [[list(each.shape), each.dtype] for each in specs],
            **{key: repr(tf.nest.map_structure(_content, value)) for key, value in parts.items()},
        }

    def __getstate__(self) -> dict[str, Any]:
        """Without metrics of Keras, whose variables would start TensorFlow in a worker."""
        return {**vars(self), "_given": tf.nest.map_structure(_shown, self._given)}

    def _made(self) -> list[Metric]:
        if isinstance(self._given, str) or callable(self._given):
            raise SettingError(
                "metrics", self._given, "is not a list", f"metrics=[{self._given!r}]"
            )
        names, given = self._names, self._given
        if not names and isinstance(given, Mapping):
            names = tuple(given)  # of a function that builds the model: checked with its outputs
        if len(names) < 2:
            if isinstance(given, Mapping):
                [given] = given.values() if given else [()]
            flat = given if isinstance(given, (list, tuple)) else [given]
            finder = self._finder(names[0] if names else "")
            return [OfOutput(_mean(each), "", finder) for each in flat]
        found: list[Metric] = []
        for place, name in enumerate(names):
            output = losses.Output(name, None, None)
            own = losses.by_output(given, output, place, alone=False)
            flat = own if isinstance(own, (list, tuple)) else [] if own is None else [own]
            found += [OfOutput(_mean(each), name, self._finder(name)) for each in flat]
        return found

    def _finder(self, name: str) -> Callable[[Any, Any], losses.Output]:
        def find(targets: Any, outputs: Any) -> losses.Output:
            pairs = self._pairs(targets, outputs)
            return next((each for each in pairs if each.name == name), pairs[0])

        return find

    def _check_metrics_of(self, names: Sequence[str]) -> None:
        """Checks the metrics of a model that did not say its outputs before it was built."""
        losses.check_outputs("metrics", self._given, names)
        by_output = self._names or isinstance(self._given, Mapping)
        if len(names) > 1 and self._given and not by_output:
            problem = f"do not say which of the outputs they are for ({', '.join(names)})"
            use = f"metrics={{{names[0]!r}: […]}}"
            raise SettingError("metrics", f"{len(self._given)} metrics", problem, use)

    def _pairs(self, targets: Any, outputs: Any) -> list[losses.Output]:
        return losses.outputs_of(targets[0], outputs, self._names)

    def model_arguments(self, schema_path: str) -> Mapping[str, Any]:
        """None: the model's function takes no arguments."""
        return {}

    def input_specs(self, arguments: Mapping[str, Any]) -> Any:
        """Those of ``x``."""
        return self._inputs

    def check_outputs(self, name: str, outputs: Any, arguments: Mapping[str, Any]) -> None:
        """Computes the loss of three examples with targets of zeros.

        Raises:
            UserError: the loss fails, or is not ``[batch]``.
        """
        if self._targets is None:
            return
        targets = self.zeros(self._targets, 3)
        self._check_metrics_of([each.name for each in self._pairs((targets,), outputs)])
        try:
            values = self.losses(outputs, (targets,), tf.float32, None)
            # Two examples as well: targets [3] would broadcast with outputs [3, 3].
            some, wanted = tf.nest.map_structure(lambda each: each[:2], (outputs, (targets,)))
            self.losses(some, wanted, tf.float32, None)
        except UserError:
            raise
        except Exception as error:  # whatever Keras or the caller's function raises
            shapes = [tuple(each.shape) for each in tf.nest.flatten([targets, outputs])]
            shown = " and ".join(map(str, shapes))
            problem = f"does not accept targets and outputs of shape {shown}: {said(error)}"
            raise SettingError("loss", _shown(self._loss), problem) from error
        if values.shape != (3,):
            raise SettingError(
                "loss",
                _shown(self._loss),
                f"has shape {tuple(values.shape)} for a batch of 3",
                "a loss that returns [batch, …], one value for each example",
            )

    @staticmethod
    def zeros(targets: Any, count: int) -> Any:
        """Targets of zeros for ``count`` examples of ``Spec``s."""
        return tf.nest.map_structure(
            lambda spec: tf.zeros((count, *(size or 1 for size in spec.shape)), spec.dtype), targets
        )

    def outputs(self, outputs: Any, schema_path: str) -> Mapping[str, Any]:
        """The model's outputs by name."""
        found = outputs if isinstance(outputs, Mapping) else {"outputs": outputs}
        return dict(found)

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """A batch of ``x`` and, except in a request, ``y``."""
        return Batch(features["x"], (features.get("y"),), weights)

    def losses(self, outputs: Any, targets: Any, dtype: Any, train: Any) -> Any:
        """The loss of each example, times its sample weight."""
        weights = targets[1] if len(targets) > 1 else None
        return losses.losses(self._loss, self._pairs(targets, outputs), dtype, weights)

    def metrics(self) -> Sequence[Metric]:
        """Those of Keras, and the number of examples."""
        return self._metrics

    def noise(self, arguments: Any, count: int, draw: np.random.Generator) -> None:
        """None: the caller has data."""


def _mean(given: Any) -> Metric:
    """A metric that is a mean, since a history adds up the values of parts of an epoch.

    Raises:
        SettingError: it is another one.
    """
    made = metrics.made(given)
    if not isinstance(made, Mean):
        raise SettingError(
            "metrics",
            made.name,
            "is not the mean of a value for each example, so parts of an epoch do not add up",
            "a metric such as accuracy or mean_absolute_error, and compute this one from "
            "model.predict after the training",
        )
    return made


class OfOutput(Metric):
    """A metric of one output, without the sample weights, as ``compile`` means ``metrics``."""

    def __init__(self, metric: Metric, output: str, find: Callable[[Any, Any], losses.Output]):
        """Takes the name of the output (empty: the model has one), and what finds it."""
        self._metric, self._find = metric, find
        self.name = f"{output}_{metric.name}" if output else metric.name
        self.size, self.cancels = metric.size, metric.cancels
        self.higher_is_better = metric.higher_is_better

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """Those of the metric."""
        output = self._find(targets, outputs)
        return self._metric.terms(output.value, output.target, dtype)

    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """Sums over the examples that are no padding."""
        output = self._find(targets, outputs)
        there = tf.cast(weights > 0, dtype)
        return self._metric.sums(output.value, output.target, there, dtype)

    def result(self, sums: Any) -> float:
        """That of the metric."""
        return self._metric.result(sums)


class RowCount(Metric):
    """The number of examples, without padding."""

    name = "row_count"
    size = 1

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """1 for each example."""
        return tf.ones([tf.shape(tf.nest.flatten(outputs)[0])[0], 1], dtype)

    def sums(self, outputs: Any, targets: Any, weights: Any, dtype: Any) -> Any:
        """Counts the examples."""
        return tf.reduce_sum(tf.cast(weights > 0, dtype))[tf.newaxis]

    def result(self, sums: Any) -> float:
        """The number."""
        return float(sums[0])


def _content(value: Any) -> str:
    """Equal for equal losses and metrics, also in another process."""
    return value if isinstance(value, str) else pickles.digest(value, _shown(value))


def _shown(value: Any) -> str:
    """A name, or the configuration of an object, without addresses in memory."""
    if isinstance(value, str):
        return value
    config = getattr(value, "get_config", None)
    if config is not None and not isinstance(value, type):
        return f"{type(value).__qualname__}({_plain(config())})"
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _plain(config: Any) -> str:
    if isinstance(config, Mapping):
        return ", ".join(f"{key}={_plain(value)}" for key, value in sorted(config.items()))
    return _shown(config) if callable(config) else str(config)
