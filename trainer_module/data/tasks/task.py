"""The base of tasks: the one object that the data, the engines and the export ask what is learned.

Imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import Self

from stagecraft.common.errors import SettingError
from stagecraft.common.registry import Entry
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch, Observed, missing

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.data.tasks.constant import Constant
    from stagecraft.trainer_module.data.tasks.metric import Metric
    from stagecraft.trainer_module.settings import TrainSettings

_TAKEN = ("step", "learning_rate", "images_per_second", "example_count")
"""Names of other numbers beside metrics, in evaluations, curves and results of the Evaluator."""

ModelArguments = Mapping[str, Any]
"""Keyword arguments of the function that builds a model: what the schema says about inputs and
outputs. Values that JSON can hold."""


class Task(Entry):
    """Base of the values of ``task.name``: a file in ``kinds/``, or an entry point."""

    sample_arguments: ModelArguments | None = None
    """Arguments of the model's function where no schema is known yet."""

    @property
    def knows_arguments(self) -> bool:
        """Whether there are :attr:`sample_arguments`; imports nothing to find them."""
        return self.sample_arguments is not None

    monitor: str
    """Name of the metric that chooses the best checkpoint; ``loss``: the least loss. Where it is
    undefined in each evaluation, the loss chooses, and the Evaluator blesses no model."""

    noun = "examples"
    """The word by which people call the examples."""

    class_label: str | None = None
    """Raw feature with the number of the class, if the exported model's ``probabilities`` are those
    of classes: the Evaluator then counts confusions. None: the Evaluator adds up the losses and
    metrics of the signature ``evaluation``."""

    report_sections: Sequence[str] = ()
    """Sections of the report, besides those of every training: names of
    ``components/report/pages/sections.py``, or of files in ``pages/templates/``."""

    first_signature = "serving_default"
    """The exported model's signature that people try first."""

    preprocessing_fn: str
    """Dotted path of the function for Transform. One with a second argument ``custom_config`` finds
    the task there, as ``{"task": {"name": …, "args": …}}``."""

    image_features: Sequence[str] = ()
    """Raw features with pictures, whose bytes TFDV does not count."""

    is_table: bool = False
    """Whether the examples are rows of a table: features named as those of pictures are none."""

    number_features: Sequence[str] = ()
    """Raw features that the model gets as numbers, so that they must be finite."""

    list_features: Sequence[str] = ()
    """Raw features with lists of any length."""

    def value_checks(self) -> Sequence[Any]:
        """Checks of raw values that AnomalyGate makes for the task: ``ValueCheck`` of tables."""
        return ()

    schema_file: str | None = None
    """Path of the TFDV schema (text proto) of what :attr:`example_gen` or :meth:`sample` gives."""

    example_gen: str | None = None
    """Dotted path of the ExampleGen that reads ``data.source``. It receives those of the settings
    of ``data`` that its constructor has, and :attr:`example_gen_args`."""

    example_gen_args: Mapping[str, Any] = MappingProxyType({})
    """More arguments of :attr:`example_gen`."""

    def preprocessing_config(self, schema_path: str) -> Mapping[str, Any]:
        """The ``custom_config`` of ``preprocessing_fn``; values that JSON can hold."""
        return {}

    preset: str | None = None
    """The preset of KerasHub that preprocesses the inputs: a folder, or a name; None: none does.
    Models of KerasHub have its sizes by default."""

    preset_download: bool = False
    """Whether the preset may be downloaded."""

    @property
    def files(self) -> Sequence[str]:
        """Paths of files that Transform's graph is made of, whose contents identify it.

        Raises:
            SettingError: they do not exist.
        """
        return ()

    evaluates_singly: bool = False
    """Whether the outputs for an example are so large that the exported model evaluates one
    example after the other."""

    def resources(self) -> Sequence[Any]:
        """Objects of TensorFlow, such as tables, that :meth:`plain_signatures` use."""
        return ()

    needs_schema: bool = True
    """Whether :meth:`model_arguments` reads more than types from the schema."""

    def check(self) -> None:
        """Refuses a task that needs arguments and has none.

        Raises:
            SettingError: ``task.args`` are missing.
        """

    def sample(self) -> Iterable[Mapping[str, Any]] | None:
        """Raw examples that a program makes: numbers and texts by feature; None: there are none."""
        return None

    def noise(
        self, arguments: ModelArguments, count: int, draw: np.random.Generator
    ) -> tuple[Nest, Nest] | None:
        """Random inputs and targets, arrays ``[count, …]``, for checks without data; or None."""
        return None

    @abc.abstractmethod
    def model_arguments(self, schema_path: str) -> ModelArguments:
        """The arguments of the model's function, from a TFDV schema (text proto).

        Raises:
            UserError: the schema lacks what the task needs.
        """

    def setting_of(self, feature: str) -> tuple[str, object]:
        """The setting that names a raw feature, and its value."""
        return "task.name", self.name

    def mismatches(
        self, observed: Mapping[str, Observed], train: str = "train"
    ) -> Iterable[Mismatch]:
        """Where the task does not fit the data: by default, features that the data lacks.

        Args:
            observed: the raw features by name.
            train: the split to train on.
        """
        for name in dict.fromkeys(self.schema_features):
            if name not in observed:
                yield missing(*self.setting_of(name), name, observed)

    categories: Sequence[str] = ()
    """Raw features whose numbers are names, so that StatisticsGen counts each value."""

    class_names: Sequence[str] | None = None
    """The classes in their order, where the settings or Transform say what they are."""

    slices: Sequence[str] = ()
    """Raw features by whose values the Evaluator also measures the metrics."""

    def resolved_args(self, arguments: Mapping[str, Any], schema_path: str) -> Mapping[str, Any]:
        """``task.args`` with what the schema says, for processes without a schema.

        Raises:
            UserError: the arguments do not fit the schema.
        """
        return arguments

    @abc.abstractmethod
    def input_specs(self, arguments: ModelArguments) -> Nest:
        """The model's inputs, without the batch, as :class:`Spec`: one, or a structure of them."""

    @abc.abstractmethod
    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Checks the outputs of the model ``name`` for a batch of three examples.

        Raises:
            UserError: the loss does not accept them.
        """

    @property
    @abc.abstractmethod
    def schema_features(self) -> Sequence[str]:
        """Raw features that the pipeline's own Transform reads."""

    @property
    @abc.abstractmethod
    def features(self) -> Sequence[str]:
        """Transformed features that :meth:`batch` reads."""

    @property
    @abc.abstractmethod
    def served_features(self) -> Sequence[str]:
        """Raw features in a request to the exported model."""

    def parse_request(self, examples: Any, raw_spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The raw features of :attr:`served_features` in a request to the exported model.

        Args:
            examples: string ``[batch]``, serialized tf.Examples.
            raw_spec: how to parse raw features.
        """
        import tensorflow as tf

        return tf.io.parse_example(
            examples, {name: raw_spec[name] for name in self.served_features}
        )

    @abc.abstractmethod
    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """The named outputs of the exported model, from the model's: tensors ``[batch, …]``."""

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """More signatures than those of serialized examples, by name; none by default.

        Returns:
            A function of one tensor, and its ``tf.TensorSpec``; or a function of keyword
            arguments, and a dictionary of their specs. An argument may have any name.
        """
        return {}

    @abc.abstractmethod
    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """A batch of examples.

        Args:
            features: transformed, by name, ``[batch, …]``. A request to the exported model has
                no targets.
            weights: float32 ``[batch]``: 0 for padding, otherwise 1, or in a training the weight of
                ``train.window_weights``.
        """

    def fitted(
        self, features: Mapping[str, Any], vocabulary: Callable[[str], Sequence[bytes]]
    ) -> Self:
        """The task with what it must know of the train split: by default itself.

        Args:
            features: transformed, of the first example, ``[1, …]``.
            vocabulary: the lines of a vocabulary that Transform wrote, by its name; none if there
                is no such vocabulary.
        """
        return self

    scales_targets: bool = False
    """Whether targets and outputs may be shifted and scaled, so that a loss that depends on their
    zero makes no sense."""

    def own_unit(self, outputs: Nest, targets: Nest) -> tuple[Nest, Nest]:
        """Outputs and targets for :meth:`outputs`, :meth:`metrics` and :meth:`sampled`.

        By default, these are those that the loss compares.

        Args:
            targets: None: there are none, as in a request to the exported model.
        """
        return outputs, targets

    def in_float32(self) -> Self:
        """The task whose :meth:`own_unit` and :meth:`outputs` use no float64: by default itself.

        TensorFlow Lite computes in float32 alone.
        """
        return self

    train_defaults: Mapping[str, Any] = MappingProxyType({})
    """Values of settings of ``train`` for which the user sets none, by name. Those of the learning
    rate belong to the optimizer: if the user sets it, they have no effect."""

    smooths: bool = True
    """Whether :meth:`losses` uses ``train.label_smoothing``; False where there are no classes."""

    mixes: bool = False
    """Whether the inputs are pictures and the targets classes, which mixup and cutmix mix."""

    @property
    def augments(self) -> bool:
        """Whether ``train.augment`` has an effect: the task has an :meth:`augment` of its own."""
        return type(self).augment is not Task.augment

    def augment(self, batch: Batch, features: Mapping[str, Any], epoch: Any, train: Any) -> Batch:
        """Changes a batch at random, by ``train.augment``; by default not at all.

        Args:
            epoch: int64 ``[batch]``, of each example.
            train: ``TrainSettings``.
        """
        return batch

    @abc.abstractmethod
    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The loss of each example: ``[batch]``, at least as precise as ``dtype``.

        Args:
            outputs: the model's, ``[batch, …]``.
            dtype: float32 or float64.
            train: settings of the training's own loss, such as label smoothing; None: the loss of
                an evaluation.
        """

    def per_example(self, values: Any, targets: Nest) -> Any:
        """The loss of each example, ``[batch]``, from values ``[batch, …]``: by default their mean.

        Args:
            values: of a loss that ``train.loss`` names.
        """
        import tensorflow as tf

        return tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))

    def training_weights(self, targets: Nest, dtype: Any) -> Any:
        """Factors of the examples' losses in a training, ``[batch]`` of ``dtype``; None: 1."""
        return None

    @abc.abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """The metrics of training and evaluation, besides the loss."""

    def constant(self) -> Constant | None:
        """The best answer without a look at the inputs, for ``evaluate.better_than_constant``.

        By default none: the Evaluator then does not check this. A task with a :attr:`class_label`
        needs none, because the Evaluator counts the most frequent class.
        """
        return None

    def decisive_metric(self) -> Metric | None:
        """The metric by which a model must beat :meth:`constant`; None: the loss.

        It is :attr:`monitor` if that is a mean over the examples: only of such a metric, or of the
        loss, each example has a difference.
        """
        from stagecraft.trainer_module.data.tasks.metric import Mean

        found = (each for each in self.metrics() if isinstance(each, Mean))
        return next((each for each in found if each.name == self.monitor), None)

    def decisive_values(
        self, losses: Callable[..., Any], outputs: Nest, targets: Nest, dtype: Any
    ) -> Any:
        """Decisive values of outputs of a model or of the constant: ``[batch]`` of ``dtype``.

        Args:
            losses: of an evaluation, as ``optimization.loss.Losses``.
            outputs: ``[batch, …]``.
            targets: ``[batch, …]``.
            dtype: of the result.
        """
        import tensorflow as tf

        decisive = self.decisive_metric()
        if decisive is None:
            return tf.cast(losses(outputs, targets, dtype, False), dtype)
        return decisive.terms(*self.own_unit(outputs, targets), dtype)[:, 0]

    def comparison_weights(self, batch: Batch) -> Any:
        """The weight of each example in the comparison: its own, times the training's factor.

        A training with class weights would otherwise lose to the frequencies that it must not
        learn.
        """
        import tensorflow as tf

        factors = self.training_weights(batch.targets, tf.float64)
        own = tf.cast(batch.weights, tf.float64)
        return own if factors is None else own * factors

    def sampled(self, outputs: Nest, targets: Nest) -> Mapping[str, Any]:
        """Numbers per example, by name, that the report shows for some examples; none by default.

        ``actual`` and ``predicted`` are a number and its estimate; ``probability`` is that of
        ``actual`` being 1.

        Returns:
            Tensors ``[batch]``.
        """
        return {}

    def samples(self, served: Served) -> Mapping[str, str]:
        """Outputs of the trained model for some inputs, as text by input; none by default."""
        return {}

    def input_text(self, schema_path: str) -> str:
        """The exported model's input, in words; ``schema_path``: of a TFDV schema."""
        return f"tf.Examples with {', '.join(self.served_features)}"

    def output_text(self, class_names: Sequence[str]) -> str:
        """The exported model's output, in words; ``class_names``: of the schema, may be empty."""
        return self.description

    def check_metrics(self) -> None:
        """Checks the names of the metrics, and that :attr:`monitor` is one of them.

        Raises:
            SettingError: a name is taken, or the monitor is no metric.
        """
        known = ["loss"]
        for metric in self.metrics():
            if metric.name in (*known, *_TAKEN):
                problem = f"has a metric {metric.name}, a name that is taken"
                raise SettingError("task.name", self.name, problem, "another name in its class")
            known.append(metric.name)
        if self.monitor not in known:
            raise SettingError(
                "task.name",
                self.name,
                f"chooses the best checkpoint by {self.monitor}, which is none of its metrics",
                f"monitor = {' or '.join(map(repr, known))} in its class",
            )

    def higher_is_better(self, name: str) -> bool:
        """Whether a greater value of the metric ``name`` is better; not for ``loss``."""
        return any(each.name == name and each.higher_is_better for each in self.metrics())

    def chooses(self, evaluations: Iterable[Evaluation]) -> str:
        """The metric that ranks evaluations: ``monitor``, or the loss if it is undefined in all."""
        found = [evaluation.flat()[self.monitor] for evaluation in evaluations]
        return "loss" if found and all(map(math.isnan, found)) else self.monitor

    def ranked(self, evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        """Evaluations by ``monitor``, best first, nan last; ties by loss, then in their order.

        So the loss ranks them if ``monitor`` is undefined in each: see :meth:`chooses`.
        """
        sign = -1 if self.higher_is_better(self.monitor) else 1

        def key(evaluation: Evaluation) -> tuple[bool, float, float]:
            value = sign * evaluation.flat()[self.monitor]
            is_nan = math.isnan(value)
            return is_nan, 0.0 if is_nan else value, evaluation.loss

        return sorted(evaluations, key=key)


class Served(NamedTuple):
    """The parts of an exported model."""

    predict: Callable[[Mapping[str, Any]], Any]
    """Maps raw features, by name, to :meth:`Task.outputs`."""

    transform: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Maps raw features to transformed ones."""

    call: Callable[[Nest], Nest]
    """Maps the model's inputs to its outputs."""

    raw_spec: Mapping[str, Any]
    """How to parse raw features from a serialized example."""

    vocabulary: Callable[[str], Sequence[bytes]]
    """The values of a vocabulary that Transform wrote, by its name."""

    schema_path: str

    model: Any = None
    """The Keras model."""


class Spec:
    """Shape and dtype of an input, without the batch."""

    def __init__(self, shape: Sequence[int | None], dtype: str = "float32"):
        """``shape``: None for a dimension that differs between batches."""
        self.shape, self.dtype = tuple(shape), dtype
