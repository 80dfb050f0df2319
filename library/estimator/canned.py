"""Canned Estimators as task, model and settings. Imports no TensorFlow.

Arguments and defaults are those of ``tf.estimator`` 2.x; ``label`` names the raw feature that an
``input_fn`` returned apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft import given
from stagecraft.estimator import feature_columns, heads, optimizers
from stagecraft.estimator.canned_model import CannedModel
from stagecraft.estimator.feature_columns import FeatureColumn
from stagecraft.estimator.optimizers import Optimizer
from stagecraft.schemas.base_settings import readable
from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.tables.table import Table
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

Columns = Mapping[str, FeatureColumn]
"""Feature columns by name. The name is that of the raw feature, unless ``source`` says another."""

_ARGUMENTS = {"task.args.label": "label", "task.args.weight": "weight_column"}
"""Settings of a table's task -> arguments."""

_LINEAR = "^linear_"
"""Paths of the weights of the linear part."""


class Canned:
    """A canned model: what to train, and how."""

    def __init__(self, task: Table, model: CannedModel, train_settings: Mapping[str, Any]):
        """See the attributes."""
        self.task = task
        """A value of ``task.name``."""
        self.model = model
        """A value of ``train.model``: a function that returns a Keras model with logits."""
        self.train_settings = {key: v for key, v in train_settings.items() if v is not None}
        """Settings of ``train`` for Estimator's optimizers."""

    def build(self) -> Any:
        """A new ``keras.Model`` of a dictionary of transformed features ``[batch, 1]``."""
        return self.model(**self.task.sample_arguments or {})

    @property
    def loss(self) -> Any:
        """The loss for ``sc.fit`` and ``keras.Model.compile``, of the model's logits."""
        import keras

        if isinstance(self.task, heads.BinaryHead):
            return keras.losses.BinaryCrossentropy(from_logits=True)
        if isinstance(self.task, heads.ClassHead):
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()

    def settings(self, parallel: ParallelSettings | None = None, **train: Any) -> TrainingSettings:
        """The settings of a training in this process.

        Args:
            train: more settings of ``train``, such as ``steps``; they go before ``train_settings``.
        """
        names = {"model": given.put("model", self.model)}
        with readable():
            return TrainingSettings.model_validate(
                {
                    "task": {"name": given.put("task", self.task)},
                    "train": {**self.train_settings, **train, **names},
                    "parallel": (parallel or ParallelSettings()).model_dump(),
                }
            )


class _Linear(Canned):
    def __init__(self, columns: Columns, optimizer: Optimizer, reduction: str, **head: Any):
        parsed = feature_columns.parsed("feature_columns", columns)
        task = _head(feature_columns.of_table(feature_columns=parsed), reduction, **head)
        rate = min(0.2, 1 / math.sqrt(len(parsed)))
        model = CannedModel(linear=feature_columns.linear(parsed))
        super().__init__(task, model, optimizers.settings({"": ("optimizer", optimizer, rate)}))


class LinearRegressor(_Linear):
    """``tf.estimator.LinearRegressor``: a weight for each number and each id, and a bias."""

    def __init__(
        self,
        feature_columns: Columns,
        *,
        label: str,
        weight_column: str | None = None,
        optimizer: Optimizer = "Ftrl",
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            feature_columns, optimizer, loss_reduction, label=label, weight=weight_column
        )


class LinearClassifier(_Linear):
    """``tf.estimator.LinearClassifier``; with two classes, the model has one logit."""

    def __init__(
        self,
        feature_columns: Columns,
        *,
        label: str,
        n_classes: int = 2,
        weight_column: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        optimizer: Optimizer = "Ftrl",
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            feature_columns,
            optimizer,
            loss_reduction,
            label=label,
            weight=weight_column,
            n_classes=n_classes,
            label_vocabulary=label_vocabulary,
        )


class _Deep(Canned):
    def __init__(
        self,
        columns: Columns,
        hidden_units: Sequence[int],
        optimizer: Optimizer,
        reduction: str,
        layers: Mapping[str, Any],
        **head: Any,
    ):
        parsed = feature_columns.parsed("feature_columns", columns)
        task = _head(feature_columns.of_table(feature_columns=parsed), reduction, **head)
        model = CannedModel(deep=feature_columns.deep(parsed), **_layers(hidden_units, **layers))
        super().__init__(task, model, optimizers.settings({"": ("optimizer", optimizer, 0.05)}))


class DNNRegressor(_Deep):
    """``tf.estimator.DNNRegressor``: dense layers."""

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Columns,
        *,
        label: str,
        weight_column: str | None = None,
        optimizer: Optimizer = "Adagrad",
        activation_fn: Any = "relu",
        dropout: float | None = None,
        batch_norm: bool = False,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments.

        Args:
            activation_fn: name of an activation of Keras, or a function.
            dropout: share of the hidden units that a step drops.

        Raises:
            SettingError: an argument is invalid.
        """
        layers = {"activation": activation_fn, "dropout": dropout, "batch_norm": batch_norm}
        head = {"label": label, "weight": weight_column}
        super().__init__(feature_columns, hidden_units, optimizer, loss_reduction, layers, **head)


class DNNClassifier(_Deep):
    """``tf.estimator.DNNClassifier``; with two classes, the model has one logit."""

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Columns,
        *,
        label: str,
        n_classes: int = 2,
        weight_column: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        optimizer: Optimizer = "Adagrad",
        activation_fn: Any = "relu",
        dropout: float | None = None,
        batch_norm: bool = False,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments; see :class:`DNNRegressor`.

        Raises:
            SettingError: an argument is invalid.
        """
        layers = {"activation": activation_fn, "dropout": dropout, "batch_norm": batch_norm}
        head = {
            "label": label,
            "weight": weight_column,
            "n_classes": n_classes,
            "label_vocabulary": label_vocabulary,
        }
        super().__init__(feature_columns, hidden_units, optimizer, loss_reduction, layers, **head)


class _Combined(Canned):
    def __init__(
        self,
        wide: tuple[Columns | None, Optimizer],
        deep: tuple[Columns | None, Optimizer],
        hidden_units: Sequence[int] | None,
        reduction: str,
        layers: Mapping[str, Any],
        **head: Any,
    ):
        linear = feature_columns.parsed("linear_feature_columns", wide[0] or {})
        dnn = feature_columns.parsed("dnn_feature_columns", deep[0] or {})
        table = feature_columns.of_table(linear_feature_columns=linear, dnn_feature_columns=dnn)
        parts: dict[str, tuple[str, Optimizer, float]] = {}
        if linear:
            rate = min(0.005, 1 / math.sqrt(len(linear)))
            parts[_LINEAR if dnn else ""] = ("linear_optimizer", wide[1], rate)
        if dnn:
            parts[""] = ("dnn_optimizer", deep[1], 0.001)
        model = CannedModel(
            feature_columns.linear(linear),
            feature_columns.deep(dnn),
            **(_layers(hidden_units or (), **layers, prefix="dnn_") if dnn else {}),
        )
        super().__init__(_head(table, reduction, **head), model, optimizers.settings(parts))


class DNNLinearCombinedRegressor(_Combined):
    """``tf.estimator.DNNLinearCombinedRegressor``: a linear model plus dense layers."""

    def __init__(
        self,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Optimizer = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Optimizer = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        *,
        label: str,
        dnn_activation_fn: Any = "relu",
        dnn_dropout: float | None = None,
        batch_norm: bool = False,
        weight_column: str | None = None,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments; see :class:`DNNRegressor`.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            (linear_feature_columns, linear_optimizer),
            (dnn_feature_columns, dnn_optimizer),
            dnn_hidden_units,
            loss_reduction,
            {"activation": dnn_activation_fn, "dropout": dnn_dropout, "batch_norm": batch_norm},
            label=label,
            weight=weight_column,
        )


class DNNLinearCombinedClassifier(_Combined):
    """``tf.estimator.DNNLinearCombinedClassifier``; two classes have one logit."""

    def __init__(
        self,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Optimizer = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Optimizer = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        *,
        label: str,
        dnn_activation_fn: Any = "relu",
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        batch_norm: bool = False,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments; see :class:`DNNRegressor`.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            (linear_feature_columns, linear_optimizer),
            (dnn_feature_columns, dnn_optimizer),
            dnn_hidden_units,
            loss_reduction,
            {"activation": dnn_activation_fn, "dropout": dnn_dropout, "batch_norm": batch_norm},
            label=label,
            weight=weight_column,
            n_classes=n_classes,
            label_vocabulary=label_vocabulary,
        )


def _head(
    columns: Mapping[str, Any],
    reduction: str,
    label: str,
    weight: str | None,
    n_classes: int | None = None,
    label_vocabulary: Sequence[str | int] | None = None,
) -> Table:
    if str(reduction).lower().rpartition(".")[2] not in ("sum_over_batch_size", "auto"):
        use = "sum_over_batch_size, with the learning rate times the batch size for a sum"
        raise SettingError("loss_reduction", reduction, "is not supported", use)
    for argument, value in (("label", label), ("weight_column", weight or "none")):
        checks.of_type(argument, value, str, "is not the name of a raw feature", "a text")
    if n_classes is not None:
        checks.whole("n_classes", n_classes, 2)
    if n_classes is not None and label_vocabulary is not None:
        values = len(set(label_vocabulary))
        if values != n_classes or len(label_vocabulary) != n_classes:
            problem = f"are not {n_classes} different values, as many as n_classes"
            use = f"n_classes={values}" if values == len(label_vocabulary) > 1 else '["no", "yes"]'
            raise SettingError("label_vocabulary", label_vocabulary, problem, use)
    try:
        if n_classes is None:
            return heads.RegressionHead(columns, label, weight, "none")
        if n_classes == 2:
            return heads.BinaryHead(columns, label, weight, label_vocabulary)
        return heads.ClassHead(columns, label, weight, n_classes, label_vocabulary)
    except SettingError as error:
        for setting, argument in _ARGUMENTS.items():
            if error.setting == setting:
                error.args = (str(error).replace(setting, argument),)
                error.setting = argument
        raise


def _layers(
    hidden_units: Sequence[int],
    activation: Any,
    dropout: float | None,
    batch_norm: bool,
    prefix: str = "",
) -> dict[str, Any]:
    """Checked arguments of :class:`CannedModel`; ``prefix`` of their names in messages."""
    argument, use = f"{prefix}hidden_units", "[64, 32]"
    checks.of_type(argument, hidden_units, (list, tuple), "is not a list", use)
    if not hidden_units:
        raise SettingError(argument, hidden_units, "has no layers", use)
    for units in hidden_units:
        checks.whole(argument, units, 1)
    if dropout is not None and not 0 <= dropout < 1:
        raise SettingError(f"{prefix}dropout", dropout, "is not a share from 0 below 1", "0.1")
    return {
        "hidden_units": tuple(hidden_units),
        "activation": activation or "relu",
        "dropout": dropout,
        "batch_norm": batch_norm,
    }
