"""A task for any table of tf.Examples: transformed features are the model's inputs, by name."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagecraft import named_objects
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.tasks.metric import Metric
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Spec, Task

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.settings import TrainSettings


class ExamplesTask(Task):
    """Task of a Keras model that learns from the examples of TFX's Transform.

    The model receives a dictionary of features. A number for each example becomes a column
    ``[batch, 1]``. The exported ``serving_default`` takes serialized tf.Examples without the label.
    """

    name = "examples"
    description = "features of tf.Examples, by name"
    preprocessing_fn = ""
    smooths = False

    def __init__(
        self,
        label: str,
        *,
        features: Sequence[str] | None = None,
        loss: Any = None,
        metrics: Sequence[Any] = (),
        monitor: str | None = None,
        weight: str | None = None,
        served: Sequence[str] | None = None,
        output: str = "outputs",
    ):
        """Declares the columns.

        Args:
            label: the transformed feature that the model predicts.
            features: the transformed features that the model receives; None: all but label and
                weight.
            loss: as ``compile`` takes it: a name such as ``binary_crossentropy``, a
                ``keras.losses.Loss``, or a function of targets and outputs. A name means what it
                means in Keras: the loss of probabilities. None: the loss of the compiled model.
            metrics: as ``compile`` takes them: names such as ``accuracy``, functions of targets and
                outputs, ``keras.metrics`` objects that are means, or :class:`stagecraft.Metric`.
            monitor: the metric that chooses the best checkpoint; None: the first one, or ``loss``.
            weight: a transformed feature with the weight of each example.
            served: the raw features of a request; None: those that the model's inputs depend on.
            output: the name of the model's output in the exported signature.

        Raises:
            SettingError: a metric is not a mean over examples.
        """
        self.label, self.weight, self.loss, self.output = label, weight, loss, output
        self._features = None if features is None else tuple(features)
        self._served = None if served is None else tuple(served)
        self._transform_graph = ""
        self._specs: dict[str, Spec] = {}
        self._metrics: tuple[Metric, ...] = _metrics_of(metrics)
        self._monitor = monitor

    @property
    def monitor(self) -> str:  # type: ignore[override]
        """The metric that chooses the best checkpoint."""
        return self._monitor or (self._metrics[0].name if self._metrics else "loss")

    def of_graph(self, transform_graph: str) -> ExamplesTask:
        """A copy that knows the features of Transform's graph. Does not start TensorFlow.

        Raises:
            SettingError: the graph has no such feature, or a feature is sparse.
        """
        import tensorflow as tf
        import tensorflow_transform as tft

        specs = tft.TFTransformOutput(transform_graph).transformed_feature_spec()
        others = [self.label, *filter(None, [self.weight])]
        chosen = self._features or tuple(sorted(specs.keys() - {*others}))
        for name in (*others, *chosen):
            setting = "task.label" if name == self.label else "task.features"
            if name not in specs:
                problem = f"is no feature that the transform graph {transform_graph} has"
                raise SettingError(setting, name, problem, f"one of {', '.join(sorted(specs))}")
            if not isinstance(specs[name], tf.io.FixedLenFeature):
                use = "a dense tensor in preprocessing_fn (tf.sparse.to_dense)"
                raise SettingError(setting, name, "is sparse after Transform", use)
        known = copy.copy(self)
        known._transform_graph, known._features = transform_graph, chosen
        known._specs = {
            name: Spec(specs[name].shape or (1,), specs[name].dtype.name) for name in chosen
        }
        return known

    def with_defaults(self, loss: Any, metrics: Sequence[Any]) -> ExamplesTask:
        """A copy with the loss, and the metrics, of a compiled model where it has none.

        Raises:
            SettingError: there is no loss, or it is not a mean over examples.
        """
        from stagecraft.objects import compiled

        known = copy.copy(self)
        known.loss = loss if self.loss is None else self.loss
        known._metrics = self._metrics or _metrics_of(metrics)
        if known.loss is None:
            use = "ExamplesTask(loss=...), or a compiled model"
            raise SettingError("task.loss", None, "is not set", use, shown="the loss")
        compiled.check_loss(known._keras_loss)
        return known

    def get_config(self) -> dict[str, Any]:
        """Arguments that identify the task, for :mod:`stagecraft.named_objects`."""
        loss = self.loss
        return {
            "label": self.label,
            "features": self._features,
            "loss": loss
            if loss is None or isinstance(loss, str)
            else named_objects.put("loss", loss),
            "metrics": [metric.name for metric in self._metrics],
            "monitor": self.monitor,
            "weight": self.weight,
            "served": self._served,
            "output": self.output,
        }

    @property
    def code(self) -> tuple[str, ...]:
        """This module."""
        return (__name__,)

    @property
    def schema_features(self) -> Sequence[str]:
        """Empty: the user's own Transform reads the features."""
        return ()

    @property
    def features(self) -> Sequence[str]:
        """The inputs, the label and the weight."""
        return (*(self._features or ()), self.label, *filter(None, [self.weight]))

    @functools.cached_property
    def served_features(self) -> Sequence[str]:
        """The raw features that the model's inputs depend on; loads Transform's graph."""
        if self._served is not None:
            return self._served
        return _needed(self._transform_graph, self._features or ())

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """No arguments: the model's function knows its inputs."""
        return {}

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """A dictionary by name."""
        return dict(self._specs)

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Accepts any: the first batch shows whether the loss does."""

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``outputs``; or those of a model that returns a dictionary."""
        return outputs if isinstance(outputs, Mapping) else {self.output: outputs}

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Inputs by name, the label, and the product of both weights."""
        import tensorflow as tf

        from stagecraft.trainer_module.data.batch import Batch

        inputs = {
            name: tf.reshape(features[name], [-1, *(size or -1 for size in spec.shape)])
            if features[name].shape.rank == 1
            else features[name]
            for name, spec in self._specs.items()
        }
        if self.weight and weights is not None:
            weights = weights * tf.cast(tf.reshape(features[self.weight], [-1]), weights.dtype)
        return Batch(inputs, features.get(self.label), weights)

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The loss of Keras, for each example."""
        from stagecraft.objects import compiled

        return compiled.losses(self._keras_loss, targets, outputs, dtype)

    @functools.cached_property
    def _keras_loss(self) -> Any:
        """The loss, with a name of ``train.loss`` as the name of Keras's class."""
        if isinstance(self.loss, str) and self.loss not in ("crossentropy", "ce"):
            entry = registries.LOSSES.get(self.loss)
            return getattr(entry, "class_name", entry.name)
        return self.loss

    def metrics(self) -> Sequence[Metric]:
        """The metrics that the caller gave."""
        return self._metrics

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made from the rest: a loss of Keras may hold tensors."""
        made = ("_keras_loss", "served_features")
        return {name: value for name, value in vars(self).items() if name not in made}


def _metrics_of(given: Sequence[Any]) -> tuple[Metric, ...]:
    from stagecraft.objects import compiled

    return tuple(map(compiled.metric, given))


def _needed(transform_graph: str, outputs: Sequence[str]) -> tuple[str, ...]:
    """The raw features that transformed ones depend on, in alphabetical order."""
    import tensorflow_transform as tft
    from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

    graph = tft.TFTransformOutput(transform_graph)
    loader, raw = SavedModelLoader(graph.transform_savedmodel_dir), graph.raw_feature_spec()
    # Private: TFT itself asks so which outputs a request without some features has.
    return tuple(
        name
        for name in sorted(raw)
        if not {*outputs} <= {*loader._get_fetches_keys(loader._get_feeds([name]))}
    )
